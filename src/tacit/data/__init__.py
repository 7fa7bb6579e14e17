"""Records in, marked records, prepared store, batches out."""
