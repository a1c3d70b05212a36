package load

// Ended is closed when the run has ended.
func (r *Run) Ended() <-chan struct{} { return r.ended }
