package telemetry

import "github.com/prometheus/client_golang/prometheus"

// emit takes one value of a metric, with the values of its labels.
type emit func(value float64, labels ...string)

// pulled is a metric whose values are asked for at each scrape.
type pulled struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(emit)
}

func newPulled(kind prometheus.ValueType, name, help string, read func(emit), labels []string) pulled {
	return pulled{desc: prometheus.NewDesc(name, help, labels, nil), kind: kind, read: read}
}

// puller registers metrics whose values are asked for at each scrape.
type puller struct{ registry *prometheus.Registry }

func (p puller) pullGauge(name, help string, read func(emit), labels ...string) {
	p.registry.MustRegister(newPulled(prometheus.GaugeValue, name, help, read, labels))
}

func (p puller) pullCounter(name, help string, read func(emit), labels ...string) {
	p.registry.MustRegister(newPulled(prometheus.CounterValue, name, help, read, labels))
}

// Describe implements prometheus.Collector.
func (p pulled) Describe(ch chan<- *prometheus.Desc) { ch <- p.desc }

// Collect implements prometheus.Collector.
func (p pulled) Collect(ch chan<- prometheus.Metric) {
	p.read(func(value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(p.desc, p.kind, value, labels...)
	})
}
