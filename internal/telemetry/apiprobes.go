package telemetry

// APIServerProbes are the probes of API servers (internal/apiprobe).
type APIServerProbes struct {
	// Up endpoints answer. Out ones fail and get no new connections. Ignored ones fail and get them all
	// the same, because too few others are left.
	Up, Out, Ignored int
	// Answered, Failed and Unknown count probes. Unknown is one that this machine could not make.
	Answered, Failed, Unknown uint64
}

// APIServerProbes shows the probes of API servers.
func (m *Metrics) APIServerProbes(read func() APIServerProbes) {
	m.pullGauge(ours+"api_server_endpoints", "Probed endpoints of default/kubernetes. out: fails its probes and gets no new connections; ignored: fails them and gets connections, because fewer than half would be left.", func(e emit) {
		p := read()
		e(float64(p.Up), "up")
		e(float64(p.Out), "out")
		e(float64(p.Ignored), "ignored")
	}, "state")
	m.pullCounter(ours+"api_server_probes_total", "Probes of endpoints of default/kubernetes. unknown: this machine could not probe.", func(e emit) {
		p := read()
		e(float64(p.Answered), "answered")
		e(float64(p.Failed), "failed")
		e(float64(p.Unknown), "unknown")
	}, "result")
}
