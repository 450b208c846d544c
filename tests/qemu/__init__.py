"""What an emulated core computes."""
