package main

import (
	"errors"
	"fmt"
	"io"
)

// exitError ends the program with a status of its own. One without an error is said already by
// what was printed.
type exitError struct {
	code int
	err  error
}

// Error implements error.
func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

// Unwrap gives the cause to errors.Is.
func (e exitError) Unwrap() error { return e.err }

// report prints an error and returns the exit status.
func report(err error, w io.Writer) int {
	if err == nil {
		return 0
	}
	var e exitError
	if !errors.As(err, &e) {
		e = exitError{1, err}
	}
	if e.err != nil {
		fmt.Fprintln(w, "kube-ipvs:", e.err)
	}
	return e.code
}
