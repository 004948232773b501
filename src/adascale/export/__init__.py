"""The whole decision in one file: network, method, calibration and threshold, for engines outside of PyTorch."""
