// Package telemetry turns what the loop reports into Prometheus metrics.
//
// Names begin with kube_ipvs_. Counters count since the process began. Nothing
// here reads the kernel; every figure was measured by the loop that did the work.
package telemetry
