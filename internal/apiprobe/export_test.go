package apiprobe

// ErrLocal is the error of a probe that this machine could not make.
var ErrLocal = errLocal
