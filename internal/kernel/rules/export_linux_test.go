package rules

import "time"

// SetTimeout bounds each process from now on. A handle that is opened with a short time-out may fail to open on a busy machine.
func (h *Handle) SetTimeout(d time.Duration) { h.opts.Timeout = d }
