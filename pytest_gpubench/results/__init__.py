"""What a run found, as typed records that outlive it: no torch, no pytest."""
