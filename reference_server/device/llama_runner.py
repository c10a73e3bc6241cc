"""Steps of a Llama model on a device: prompts as one flat batch, decoding as one padded batch or CUDA graph.

Where asked, the next token of every sequence is launched before this step's tokens are waited for, and dropped if
nobody asks for it. That is safe because the device keeps the order given: a token computed in vain lies in a slot of
its own sequence or in a spare page, and whoever gets that slot later writes it before reading it.
"""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plimsoll.reference_server.device.paged_cache import DecodeAttention, PagedCache, gathered, prompt_attention
from plimsoll.reference_server.models.llama import Llama, elementwise
from plimsoll.reference_server.seams.models import Chunk
from plimsoll.reference_server.values.durations import COMPILE, WARM_UP, Startup

if TYPE_CHECKING:
    from plimsoll.reference_server.device.pages_in_place import PagesInPlace


_DEPTH = 3
"""Buffers in turn: one that the device reads, one that waits its turn, one that the host fills."""
_COLUMNS = 7
_REHEARSALS = 2
"""Runs before a capture: the first compiles and loads kernels, the second shows that nothing is left to load."""
_ROOM = 1 << 14
_log = logging.getLogger(__name__)
_RECOMPILES = 256
"""More than all batch sizes of the ladder; torch gives up compiling after 8 by default."""
_TILE = 64
"""Keys that flex attention's decoding kernel takes at a time."""
_CUDA_KV_SHARE = 0.8
"""Of the memory that weights leave free: graphs and a step's own tensors need the rest."""
_CPU_KV_BYTES = 2 << 30


class Staging:
    """Host memory that a device reads from: integers in a few buffers used in turn."""

    def __init__(self, size: int, *, device: str) -> None:
        self._pinned = device != "cpu"
        self._device = device
        self._buffers = [torch.zeros(size, dtype=torch.int32, pin_memory=self._pinned) for _ in range(_DEPTH)]
        self._views: list[npt.NDArray[np.int32]] = [buffer.numpy() for buffer in self._buffers]
        self._read: list[torch.cuda.Event | None] = [None] * _DEPTH
        self._turn = 0

    def next(self) -> npt.NDArray[np.int32]:
        """The buffer to fill now; waits until the device has read what was sent from it, long ago as a rule."""
        self._turn = (self._turn + 1) % _DEPTH
        event = self._read[self._turn]
        if event is not None:
            event.synchronize()
        return self._views[self._turn]

    def send(self, target: Tensor) -> None:
        """Copy the beginning of the buffer into a device tensor, in stream order."""
        source = self._buffers[self._turn][: target.numel()].view(target.shape)
        target.copy_(source, non_blocking=self._pinned)
        if self._pinned:
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
            self._read[self._turn] = event


class Reading:
    """Device numbers on their way to the host."""

    def __init__(self, size: int, *, device: str) -> None:
        self._pinned = device != "cpu"
        self._host = torch.zeros(size, dtype=torch.int64, pin_memory=self._pinned)
        self._event: torch.cuda.Event | None = None

    def start(self, source: Tensor) -> None:
        """Begin to copy, after what the stream does already; what it is given next may overwrite the source."""
        self._host[: source.numel()].copy_(source, non_blocking=self._pinned)
        if self._pinned:
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def wait(self) -> list[int]:
        """The numbers, once they are here. While one waits, other threads run."""
        if self._event is not None:
            self._event.synchronize()
        numbers: list[int] = self._host.tolist()
        return numbers


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence in a decoding step: its token is ``token``, or what the board says at ``source`` unless that is
    -1."""

    token: int
    source: int
    position: int
    allow_eos: bool
    pages: Sequence[int]


@dataclass(frozen=True, slots=True)
class Columns:
    """A step's inputs on the device, [B] each, ``tables`` [B, W]; views of the static buffer, int32."""

    token: Tensor
    source: Tensor
    position: Tensor
    slot: Tensor
    allow_eos: Tensor
    move_from: Tensor
    move_to: Tensor
    tables: Tensor


class DecodeInputs:
    """Static inputs for steps of up to ``max_rows`` rows of up to ``max_width`` pages."""

    def __init__(self, *, max_rows: int, max_width: int, page_size: int, scratch: int, device: str) -> None:
        self._page_size = page_size
        self._scratch = scratch
        size = max_rows * (_COLUMNS + max_width)
        self._staging = Staging(size, device=device)
        self._packed = torch.zeros(size, dtype=torch.int32, device=device)

    def load(self, rows: Sequence[Row], moves: Sequence[tuple[int, int]], n_rows: int, width: int) -> None:
        """Send ``rows`` and the slots to be moved first (from, to), padded to ``n_rows`` x ``width``."""
        slot = self._scratch * self._page_size
        stride = _COLUMNS + width
        table = self._staging.next()[: n_rows * stride].reshape(n_rows, stride)
        table[:, :_COLUMNS] = (0, -1, 0, slot, 0, slot, slot)
        table[:, _COLUMNS:] = self._scratch
        for line, row in zip(table, rows, strict=False):
            n = row.position // self._page_size + 1
            at = row.pages[n - 1] * self._page_size + row.position % self._page_size
            line[:5] = (row.token, row.source, row.position, at, row.allow_eos)
            line[_COLUMNS : _COLUMNS + n] = row.pages[:n]
        for line, move in zip(table, moves, strict=False):
            line[5:7] = move
        self._staging.send(self._packed[: n_rows * stride])

    def columns(self, n_rows: int, width: int) -> Columns:
        """Where a step of that size finds its inputs."""
        stride = _COLUMNS + width
        table = self._packed[: n_rows * stride].view(n_rows, stride)
        token, source, position, slot, allow_eos, move_from, move_to = table[:, :_COLUMNS].unbind(1)
        return Columns(token, source, position, slot, allow_eos, move_from, move_to, table[:, _COLUMNS:])


Body = Callable[[int, int], None]
"""Compute a step of (rows, pages of a row) from static inputs into static results."""


def ladder(largest: int) -> tuple[int, ...]:
    """Batch sizes to capture up to ``largest``: powers of two up to 16, then eights up to 64, then thirty-twos.

    Padding costs little where a step is bound by the weights that it reads: the steps are fine where a row's share is
    large.
    """
    sizes = [size for size in (1, 2, 4, 8, 16, *range(24, 65, 8), *range(96, largest, 32)) if size < largest]
    return (*sizes, largest)


def powers(smallest: int, largest: int) -> tuple[int, ...]:
    """Widths to capture: powers of two from ``smallest``, and ``largest``."""
    widths = []
    while smallest < largest:
        widths.append(smallest)
        smallest *= 2
    return (*widths, largest)


def fit(sizes: tuple[int, ...], wanted: int) -> int:
    """The smallest of ascending ``sizes`` that holds ``wanted``. Raises ValueError when none does."""
    for size in sizes:
        if size >= wanted:
            return size
    raise ValueError(f"{wanted} rows exceed the largest size {sizes[-1]}")


class Graphs:
    """A body, and its captures by size."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._captured: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        self._pool: Any = None

    def capture(self, n_rows: int, width: int) -> None:
        """Capture the body at one size. Its static inputs must be harmless: it runs, and what it writes stays."""
        apart = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        apart.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(apart):
            for _ in range(_REHEARSALS):
                self._body(n_rows, width)
        torch.cuda.current_stream().wait_stream(apart)
        graph = torch.cuda.CUDAGraph()
        # One pool for all: they replay one after the other, so what one uses for itself the next may use again.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            self._body(n_rows, width)
        self._pool = self._pool or graph.pool()
        self._captured[n_rows, width] = graph

    def run(self, n_rows: int, width: int) -> None:
        """Replay the graph of that size; where none was captured, call the body."""
        graph = self._captured.get((n_rows, width))
        if graph is None:
            self._body(n_rows, width)
        else:
            graph.replay()


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of the flat batch that are one sequence's, where they start in it, and the pages up to their end."""

    rows: slice
    start: int
    pages: Tensor


class Prompts:
    """Computes pieces of prompts into a cache."""

    def __init__(self, model: Llama, cache: PagedCache) -> None:
        self._model = model
        self._cache = cache
        self._staging = Staging(_ROOM, device=model.device.type)
        self._room = _ROOM

    def compute(self, chunks: Sequence[Chunk]) -> Tensor:
        """Put the chunks' keys and values into the cache; the tokens [S] that follow those that have ``sample``."""
        size = self._cache.page_size
        spans = [range(chunk.start, chunk.start + len(chunk.tokens)) for chunk in chunks]
        tokens = [token for chunk in chunks for token in chunk.tokens]
        positions = [at for span in spans for at in span]
        slots = [
            chunk.blocks[at // size] * size + at % size
            for chunk, span in zip(chunks, spans, strict=True)
            for at in span
        ]
        ends = list(itertools.accumulate(len(chunk.tokens) for chunk in chunks))
        last = [end - 1 for end, chunk in zip(ends, chunks, strict=True) if chunk.sample]
        allow = [int(chunk.allow_eos) for chunk in chunks if chunk.sample]
        tables = [list(chunk.blocks[: -(-span.stop // size)]) for chunk, span in zip(chunks, spans, strict=True)]
        at_device = self._send([tokens, positions, slots, last, allow, *tables])
        token, position, slot, last_row, allow_eos = (part.long() for part in at_device[:5])
        pieces = [
            _Piece(slice(end - len(span), end), span.start, table)
            for end, span, table in zip(ends, spans, at_device[5:], strict=True)
        ]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self._cache.write(layer, k, v, slot)
            mixed = [
                prompt_attention(
                    self._cache, layer, q[piece.rows], k[piece.rows], v[piece.rows], piece.pages, piece.start
                )
                for piece in pieces
            ]
            return mixed[0] if len(mixed) == 1 else torch.cat(mixed)

        hidden = self._model.hidden(token, position, attend)
        return self._model.choose(hidden[last_row], allow_eos) if last else token[:0]

    def _send(self, parts: Sequence[Sequence[int]]) -> list[Tensor]:
        """Lists of numbers as int32 tensors on the device, in one copy."""
        n = sum(len(part) for part in parts)
        if n > self._room:
            self._room = 1 << n.bit_length()
            self._staging = Staging(self._room, device=self._model.device.type)
        self._staging.next()[:n] = list(itertools.chain.from_iterable(parts))
        whole = torch.empty(n, dtype=torch.int32, device=self._model.device)
        self._staging.send(whole)
        ends = list(itertools.accumulate((len(part) for part in parts), initial=0))
        return [whole[begin:end] for begin, end in itertools.pairwise(ends)]


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
        return cls(paged=True, graphs=True, compiled=True, ahead=True, sizes=ladder(max_batch))


@dataclass(slots=True)
class _Ahead:
    """A token computed before it was asked for: where on the board its successor will stand, and under which
    assumptions."""

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
        """``n_blocks`` None: as many as memory has room for, and no more than ``max_batch`` whole contexts need. Where
        pages are read in place a block has a multiple of 64 tokens, the tile of the kernel: ``block_size`` says what it
        became."""
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
        self._graphs = Graphs(self._decode)
        self._ahead: dict[int, _Ahead] = {}
        self._execute_as(options)

    @property
    def options(self) -> Options:
        """How steps are executed now: as asked for, or without what could not be had."""
        return self._options

    @property
    def itemsize(self) -> int:
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
        return [self._model.embed(prompt).tolist() for prompt in prompts]

    def _as_foreseen(self, known: _Ahead, chunk: Chunk, moves: list[tuple[int, int]]) -> bool:
        """Is this chunk what was computed ahead? If its page was not given out then, its slot is noted to be moved."""
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
        n_rows = wanted if self._options.sizes is None else fit(self._options.sizes, wanted)
        n_pages = max(row.position // self.block_size + 1 for row in rows)
        width = fit(self._widths, n_pages) if self._widths else n_pages
        self._inputs.load(rows, moves, n_rows, width)
        if moves:  # once in a page's worth of tokens, so it has no place in every step's graph
            given, n = self._inputs.columns(n_rows, width), len(moves)
            self._cache.move(given.move_from[:n].long(), given.move_to[:n].long())
        self._graphs.run(n_rows, width)

    def _decode(self, n_rows: int, width: int) -> None:
        """A decoding step from the static inputs onto the board: the body of the graphs, which nothing but tensors may
        enter."""
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
        self._graphs = Graphs(self._decode)
        # Where pages are read in place a table's width costs nothing; where they are copied, it is what is copied.
        padded = options.sizes is not None
        smallest = max(1, 512 // self.block_size)
        self._widths = (self._width,) if options.paged else powers(smallest, self._width) if padded else ()

    def _compile(self) -> None:
        """Run every size once, captured if so asked; without a working compiler with copies and plain functions."""
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
