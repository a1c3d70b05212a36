package telemetry_test

import (
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// The metrics show the values that were passed, even if the mode changes its map afterwards.
func TestDrainsAreShownAsTold(t *testing.T) {
	m := telemetry.New()
	wants(t, get(t, m.Handler()), `kube_ipvs_drained_total{reason="empty"} 0`, `kube_ipvs_drained_total{reason="deadline"} 0`,
		`kube_ipvs_drained_total{reason="service_deleted"} 0`, `kube_ipvs_drained_total{reason="back"} 0`, "kube_ipvs_draining_destinations 0",
		"kube_ipvs_trash_destinations 0")

	book := map[dataplane.DrainEnd]uint64{dataplane.DrainEmpty: 2}
	m.Drains(dataplane.Drains{Now: 3, Ended: book})
	book[dataplane.DrainEmpty] = 7
	wants(t, get(t, m.Handler()), `kube_ipvs_drained_total{reason="empty"} 2`, `kube_ipvs_drained_total{reason="back"} 0`, "kube_ipvs_draining_destinations 3")

	now := time.Now()
	m.Drains(dataplane.Drains{Trash: dataplane.Trash{{Until: now, Count: 1}, {Until: now.Add(time.Hour), Count: 2}, {Until: now.Add(time.Hour), Count: 4}}})
	wants(t, get(t, m.Handler()), "kube_ipvs_trash_destinations 6")

	m.Drains(dataplane.Drains{Ended: book})
	wants(t, get(t, m.Handler()), `kube_ipvs_drained_total{reason="empty"} 7`, "kube_ipvs_draining_destinations 0")
}
