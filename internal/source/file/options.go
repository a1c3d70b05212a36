package file

import "time"

// Options tune how changes on disk are noticed. A zero field means its default.
type Options struct {
	// Poll is how often the files are looked at without being told (stat only).
	// It catches what inotify cannot see: network file systems, symlinks whose
	// target lives elsewhere. Default 10 s.
	Poll time.Duration
	// Quiet is how long the files must have been left alone before they are read,
	// so that half-written ones are not. Default 50 ms.
	Quiet time.Duration
	// Patience bounds the wait for Quiet while changes keep coming. Default 500 ms.
	Patience time.Duration
}

// Defaults returns the options that New uses for zero fields.
func Defaults() Options {
	return Options{Poll: 10 * time.Second, Quiet: 50 * time.Millisecond, Patience: 500 * time.Millisecond}
}

func (o Options) orDefaults() Options {
	d := Defaults()
	if o.Poll <= 0 {
		o.Poll = d.Poll
	}
	if o.Quiet <= 0 {
		o.Quiet = d.Quiet
	}
	if o.Patience <= 0 {
		o.Patience = d.Patience
	}
	return o
}
