"""Steps of a Llama model on a device behind the Runner seam: prompts as one flat batch, decoding as one padded batch or graph.

Decoding runs ahead where that is asked for: before a step waits for its tokens, the next token of every sequence it sampled is
launched, from the tokens as they lie on the device. If the next call asks for just that (the same position, token and pages), its
answer is there already or on its way, and the device has not waited for the host to plan; what nobody asks for is dropped. This is
safe because the device does things in the order given: a token computed in vain lies in a slot of its own sequence, or in a spare
page, and whoever is given that slot later writes it before reading it. It refuses to schedule, and to own blocks.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from plimsoll.reference_server.device import graphs
from plimsoll.reference_server.device.attention import DecodeAttention, gathered
from plimsoll.reference_server.device.copies import Reading
from plimsoll.reference_server.device.decode_inputs import DecodeInputs, Row
from plimsoll.reference_server.device.kv_cache import PagedCache
from plimsoll.reference_server.device.prompts import Prompts
from plimsoll.reference_server.models.llama import Llama, elementwise
from plimsoll.reference_server.seams.runner import Chunk
from plimsoll.reference_server.values.startup import COMPILE, WARM_UP, Startup

if TYPE_CHECKING:
    from plimsoll.reference_server.device.pages_in_place import PagesInPlace

_log = logging.getLogger(__name__)
_RECOMPILES = 256
"""More than all batch sizes of the ladder; torch gives up compiling after 8 by default."""


_TILE = 64
"""Keys that flex attention's decoding kernel takes at a time."""
_CUDA_KV_SHARE = 0.8
"""Of the memory that weights leave free: graphs and a step's own tensors need the rest."""
_CPU_KV_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Options:
    """How steps are executed. Every combination gives the same tokens within the tolerance of the number format."""

    paged: bool = False
    """Decode over the pages in place (needs a compiler), or over copies of them."""
    graphs: bool = False
    compiled: bool = False
    """Fuse the element-wise parts."""
    ahead: bool = False
    """Launch the next step before this one's tokens are waited for."""
    sizes: tuple[int, ...] | None = None
    """Batch sizes to pad to; None: as many rows as there are."""

    @classmethod
    def on(cls, device: str, max_batch: int) -> Options:
        """What pays on a device: everything on CUDA; on a CPU, where nothing is launched, nothing."""
        if device == "cpu":
            return cls()
        return cls(paged=True, graphs=True, compiled=True, ahead=True, sizes=graphs.ladder(max_batch))


@dataclass(slots=True)
class _Ahead:
    """A token computed before it was asked for: where on the board its successor will stand, and under which assumptions."""

    place: int
    source: int
    position: int
    allow_eos: bool
    page: int
    token: int = -1
    """The token that was computed; known once the step that sampled it has been read."""


class LlamaRunner:
    """One model and its paged cache on one device."""

    def __init__(
        self,
        model: Llama,
        *,
        block_size: int,
        n_blocks: int | None,
        max_batch: int,
        threads: int,
        options: Options,
        startup: Startup,
    ) -> None:
        """``n_blocks`` None: as many as memory has room for, and no more than ``max_batch`` whole contexts need. Where pages are read
        in place a block has a multiple of 64 tokens, the tile of the kernel: ``block_size`` says what it became.
        """
        torch.set_num_threads(threads)
        self.shape = model.shape
        self.device = model.device.type
        self.block_size = block_size = -(-block_size // _TILE) * _TILE if options.paged else block_size
        if n_blocks is None:
            n_blocks = room(model, block_size, max_batch * model.shape.max_context)
        self.n_blocks = n_blocks
        self._model = model
        self._threads = threads
        self._startup = startup
        self._options = options
        self._rows = max_batch if options.sizes is None else options.sizes[-1]
        self._width = min(-(-model.shape.max_context // block_size), n_blocks + 1)
        self._cache = PagedCache(
            model.shape,
            n_pages=n_blocks,
            n_spare=self._rows if options.ahead else 0,
            page_size=block_size,
            device=self.device,
            dtype=model.dtype,
        )
        self._inputs = DecodeInputs(
            max_rows=self._rows,
            max_width=self._width,
            page_size=block_size,
            scratch=self._cache.scratch,
            device=self.device,
        )
        self._prompts = Prompts(model, self._cache)
        # Sampled tokens: of the last decoding launch, of the one before it while both matter, of prompts.
        self._board = torch.zeros(3 * self._rows, dtype=torch.int64, device=self.device)
        self._reading = Reading(3 * self._rows, device=self.device)
        self._in_place: PagesInPlace | None = None
        self._graphs = graphs.Graphs(self._decode)
        self._ahead: dict[int, _Ahead] = {}
        self._execute_as(options)

    @property
    def options(self) -> Options:
        """How steps are executed now: as asked for, or without what could not be had."""
        return self._options

    @property
    def itemsize(self) -> int:
        """Bytes of one weight."""
        return self._model.dtype.itemsize

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Compile and capture what the options ask for, then take a prompt and a few steps through the scratch page."""
        torch.set_num_threads(self._threads)  # the setting is per thread, and this is the thread that steps
        if self._options.graphs or self._options.compiled or self._options.paged:
            limit = torch._dynamo.config.patch(recompile_limit=_RECOMPILES)
            with self._startup.phase(COMPILE), warnings.catch_warnings(), limit:
                warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")  # the weights are bf16
                self._compile()
        with self._startup.phase(WARM_UP):
            scratch = (self._cache.scratch,)
            prompt = list(range(32, 32 + min(32, self.block_size)))
            self.step([Chunk(-1, prompt, 0, scratch, True, False)])
            for size in (1, 2, 4, 8):
                self.step([Chunk(-1, prompt[:1], 0, scratch, True, False)] * min(size, self._rows))
            self._ahead.clear()
            if self.device != "cpu":
                torch.cuda.synchronize()

    @torch.inference_mode()
    def step(self, chunks: Sequence[Chunk]) -> list[int]:
        """Compute all chunks; the next token of each chunk that has ``sample``, in the order given."""
        foreseen, self._ahead = self._ahead, {}
        places: dict[int, int] = {}
        moves: list[tuple[int, int]] = []
        fresh: list[int] = []
        prompts: list[int] = []
        for index, chunk in enumerate(chunks):
            if len(chunk.tokens) > 1 or not chunk.sample:
                prompts.append(index)
            elif (known := foreseen.get(chunk.sequence_id)) is not None and self._as_foreseen(known, chunk, moves):
                places[index] = known.place
            else:
                fresh.append(index)
        if fresh:
            if places:  # the launch below overwrites what stands there
                self._board[self._rows : 2 * self._rows].copy_(self._board[: self._rows])
                places = {index: place + self._rows for index, place in places.items()}
            rows = [
                Row(chunk.tokens[0], -1, chunk.start, chunk.allow_eos, chunk.blocks)
                for chunk in (chunks[index] for index in fresh)
            ]
            self._launch(rows, moves)
            moves = []
            places |= {index: row for row, index in enumerate(fresh)}
        if prompts:
            places |= self._compute_prompts([(index, chunks[index]) for index in prompts])
        self._reading.start(self._board)
        if self._options.ahead:
            self._launch_ahead([(chunk, places[i]) for i, chunk in enumerate(chunks) if chunk.sample], moves)
        tokens = self._reading.wait()
        for entry in self._ahead.values():
            entry.token = tokens[entry.source]
        return [tokens[places[index]] for index, chunk in enumerate(chunks) if chunk.sample]

    @torch.inference_mode()
    def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """One unit-length vector per prompt: the mean of its last hidden states."""
        return [self._model.embed(prompt).tolist() for prompt in prompts]

    def _as_foreseen(self, known: _Ahead, chunk: Chunk, moves: list[tuple[int, int]]) -> bool:
        """Is this chunk what was computed ahead? If its page was not given out then, its slot is noted to be moved there."""
        asked = (chunk.start, chunk.tokens[0], chunk.allow_eos)
        if asked != (known.position, known.token, known.allow_eos):
            return False
        page = chunk.blocks[chunk.start // self.block_size]
        if known.page > self._cache.scratch:
            offset = chunk.start % self.block_size
            moves.append((known.page * self.block_size + offset, page * self.block_size + offset))
            return True
        return page == known.page

    def _launch_ahead(self, sampled: Sequence[tuple[Chunk, int]], moves: Sequence[tuple[int, int]]) -> None:
        """Begin the next step of all that this one sampled, whatever their tokens turn out to be."""
        rows: list[Row] = []
        for chunk, place in sampled:
            position = chunk.start + len(chunk.tokens)
            if position >= self.shape.max_context or chunk.sequence_id in self._ahead:
                continue
            number = position // self.block_size
            page = chunk.blocks[number] if number < len(chunk.blocks) else self._cache.spare(len(rows))
            self._ahead[chunk.sequence_id] = _Ahead(len(rows), place, position, chunk.allow_eos, page)
            rows.append(Row(0, place, position, chunk.allow_eos, [*chunk.blocks[:number], page]))
        if rows:
            self._launch(rows, moves)

    def _launch(self, rows: Sequence[Row], moves: Sequence[tuple[int, int]]) -> None:
        wanted = max(len(rows), len(moves))
        n_rows = wanted if self._options.sizes is None else graphs.fit(self._options.sizes, wanted)
        n_pages = max(row.position // self.block_size + 1 for row in rows)
        width = graphs.fit(self._widths, n_pages) if self._widths else n_pages
        self._inputs.load(rows, moves, n_rows, width)
        if moves:  # once in a page's worth of tokens, so it has no place in every step's graph
            given, n = self._inputs.columns(n_rows, width), len(moves)
            self._cache.move(given.move_from[:n].long(), given.move_to[:n].long())
        self._graphs.run(n_rows, width)

    def _decode(self, n_rows: int, width: int) -> None:
        """A decoding step from the static inputs onto the board: the body of the graphs, which nothing but tensors may enter."""
        given = self._inputs.columns(n_rows, width)
        source, position, slot = given.source.long(), given.position.long(), given.slot.long()
        tokens = torch.where(source >= 0, self._board[source.clamp(min=0)], given.token)
        if self._in_place is None:
            mixed: DecodeAttention = gathered(self._cache, given.tables, position)
        else:
            mixed = self._in_place.attention(given.tables, position)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self._cache.write(layer, k, v, slot)
            return mixed(layer, q)

        hidden = self._model.hidden(tokens, position, attend)
        self._board[:n_rows].copy_(self._model.choose(hidden, given.allow_eos))

    def _compute_prompts(self, pieces: Sequence[tuple[int, Chunk]]) -> dict[int, int]:
        """Compute pieces of prompts; where on the board the tokens of those that sample one stand."""
        chosen = self._prompts.compute([chunk for _, chunk in pieces])
        first = 2 * self._rows
        self._board[first : first + len(chosen)].copy_(chosen)
        sampling = [index for index, chunk in pieces if chunk.sample]
        return {index: first + n for n, index in enumerate(sampling)}

    def _execute_as(self, options: Options) -> None:
        self._options = options
        self._model.elementwise = elementwise(compiled=options.compiled)
        self._in_place = None
        if options.paged:
            from plimsoll.reference_server.device.pages_in_place import PagesInPlace  # imports a compiler: seconds

            self._in_place = PagesInPlace(self._cache)
        self._graphs = graphs.Graphs(self._decode)
        # Where pages are read in place, the width of a table costs nothing; where they are copied, it is what is copied.
        padded = options.sizes is not None
        smallest = max(1, 512 // self.block_size)
        self._widths = (self._width,) if options.paged else graphs.powers(smallest, self._width) if padded else ()

    def _compile(self) -> None:
        """Run every size once, captured if so asked. Without a working compiler: the same with copies and plain functions."""
        try:
            self._run_sizes()
        except Exception as error:
            plain = Options(graphs=self._options.graphs, ahead=self._options.ahead, sizes=self._options.sizes)
            if plain == self._options:
                raise
            _log.warning("decoding in place and fused functions are not to be had here, so it is copies: %s", error)
            self._execute_as(plain)
            self._run_sizes()

    def _run_sizes(self) -> None:
        self._prompts.compute([Chunk(-1, [32] * 2, 0, (self._cache.scratch,) * 2, True, False)])
        padding = Row(0, -1, 0, False, (self._cache.scratch,))
        for width in self._widths or (1,):
            # The largest first: what it needs for itself the smaller ones reuse.
            for n_rows in sorted(self._options.sizes or (1,), reverse=True):
                self._inputs.load([padding], (), n_rows, width)
                if self._options.graphs:
                    self._graphs.capture(n_rows, width)
                else:
                    self._decode(n_rows, width)


def room(model: Llama, block_size: int, useful_tokens: int) -> int:
    """Blocks that the device has room for beside the weights, and no more than ``useful_tokens`` need."""
    free = _CPU_KV_BYTES
    if model.device.type == "cuda":
        free = int(torch.cuda.mem_get_info(model.device)[0] * _CUDA_KV_SHARE)
    block_bytes = block_size * model.shape.kv_bytes(model.dtype.itemsize)
    return max(1, min(-(-useful_tokens // block_size), free // block_bytes))
