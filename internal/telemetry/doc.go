// Package telemetry turns what the loop and its neighbours report into Prometheus
// metrics.
//
//	loop, health port ─► Metrics ─► /metrics       kubeproxy_*, kube_ipvs_*, rest_client_*,
//	catalog, watches  ◄─ at a scrape               kubernetes_*, go_*, process_*
//	                             ─► /metrics/slis
//
// Events reach the metrics by method calls (Pass, Cycle, Probed). State is read by functions at
// each scrape (Inputs, Loop, Watches), so that a stuck loop is visible. The traffic of Services is
// read from the kernel by functions that the daemon supplies, at most once in ten seconds for all
// scrapes (Services). A limited number of Services have a counter each, and all others share one
// (serviceCounters).
//
// The law it keeps: a metric of kube-proxy that has a meaning in ipvs mode exists with the name,
// type, labels and buckets of v1.37. So dashboards and alerts stay as they are. A metric without a
// meaning is absent rather than zero. testdata/kube-proxy.txt has the verdict on each, and a test
// proves it.
//
// Nothing here reads the kernel or knows how a figure came about.
package telemetry
