"""The run folder: release/ and private/, what may leave, and its verification."""
