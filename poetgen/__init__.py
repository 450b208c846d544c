"""poetgen: an ONNX model and a board in, a C project that trains the model out."""

__version__ = "0.1.0"
