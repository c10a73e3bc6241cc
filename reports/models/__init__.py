"""What a search, a sweep, a comparison, a capacity plan and a cold start found: the documents for programs, one file
each.
"""
