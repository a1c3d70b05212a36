// Package httpd has the agent's HTTP servers: the health listener (10256 by default) and
// the metrics listener (127.0.0.1:10249). Paths, codes, headers and bodies are those of
// kube-proxy v1.37 (pkg/proxy/healthcheck, cmd/kube-proxy/app/server.go), because load
// balancers, kubelets, scrapers and scripts read them already.
//
// It knows HTTP, but nothing of Services, the loop or the configuration. Facts come from functions
// that are called for each request, and metrics from a handler.
//
//	probe ──▶ HealthHandler ──Report──▶ the loop
//	scrape ─▶ MetricsHandler ─▶ handlers and functions of other packages
//	both behind Serve: listen, retry, stop
//
// The laws it keeps: no request waits for ever, and no client holds a place that another
// needs. An agent that does not say how it is within five seconds is not well. A red answer
// names the checks that fail, and nothing that only operators should know. A listener that
// cannot be opened is tried again, and nothing is left open when Serve returns.
package httpd
