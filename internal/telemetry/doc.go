// Package telemetry turns what the loop and its neighbours report into Prometheus
// metrics.
//
//	loop, health port ─► Metrics ─► /metrics       kubeproxy_*, kube_ipvs_*, rest_client_*,
//	catalog, watches  ◄─ at a scrape               kubernetes_*, go_*, process_*
//	                             ─► /metrics/slis
//
// What happens is told by calls (Pass, Cycle, Probed); what merely is gets asked for
// when somebody scrapes (Inputs, Loop, Watches), so that a loop that is stuck shows. What
// Services carry is asked of the kernel then, by functions that were handed in and once for
// all scrapes of ten seconds (Services): an account for each Service up to a number of them,
// and one for all others (ledger).
//
// The law it keeps: a metric of kube-proxy that means something in ipvs mode is there
// with the name, type, labels and buckets of v1.36, so that dashboards and alerts stay as
// they are; one that means nothing is absent rather than zero.
// testdata/kube-proxy.txt has the verdict on each, and a test proves it.
//
// Nothing here reads the kernel or knows how a figure came about.
package telemetry
