package plane

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// Metrics are those that the server tells of itself, in the text format of Prometheus.
type Metrics string

// Metrics asks the server.
func (p *Plane) Metrics(ctx context.Context) (Metrics, error) {
	// The usual client asks for protobuf, which this is not.
	config := *p.config
	config.ContentType, config.AcceptContentTypes = "", ""
	client, err := kubernetes.NewForConfig(&config)
	if err != nil {
		return "", err
	}
	text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("ask the API server for metrics: %w", err)
	}
	return Metrics(text), nil
}

// By sums the samples of a metric by one of its labels, of those that have all others as wanted.
func (m Metrics) By(name, label string, want map[string]string) map[string]float64 {
	out := map[string]float64{}
	for line := range strings.SplitSeq(string(m), "\n") {
		rest, ok := strings.CutPrefix(line, name+"{")
		if !ok {
			continue
		}
		labels, value, ok := strings.Cut(rest, "} ")
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if got := parseLabels(labels); err == nil && covers(got, want) {
			out[got[label]] += v
		}
	}
	return out
}

// Sum is all of a metric with labels as wanted.
func (m Metrics) Sum(name string, want map[string]string) (sum float64) {
	for v := range maps.Values(m.By(name, "", want)) {
		sum += v
	}
	return sum
}

// parseLabels reads a="b",c="d". None of the labels that are asked for has a quote in its value.
func parseLabels(text string) map[string]string {
	out := map[string]string{}
	for text != "" {
		name, rest, ok := strings.Cut(text, `="`)
		if !ok {
			break
		}
		value, rest, ok := strings.Cut(rest, `"`)
		if !ok {
			break
		}
		out[name], text = value, strings.TrimPrefix(rest, ",")
	}
	return out
}

func covers(got, want map[string]string) bool {
	for name, value := range want {
		if got[name] != value {
			return false
		}
	}
	return true
}
