package agent_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// The answer to a query is complete and in order, in any number of pieces, and has what a Service
// wants and does not get.
func TestServicesInfo(t *testing.T) {
	const many = 700
	run(t, newMode(), func(w *world) {
		for i := range many {
			w.SetService(service(fmt.Sprintf("s-%03d", i), fmt.Sprintf("10.96.%d.%d", 1+i/200, 1+i%200)))
		}
		late := service("z-late", "10.96.1.1") // that of s-000, which comes first by name
		w.SetService(late)
		bad := service("bad", "10.96.9.9")
		bad.Headless = true
		w.SetService(bad)
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		ids, err := w.loop.Services(w.Context())
		if err != nil || len(ids) != many+2 {
			w.Fatalf("%d services, error %v, want %d", len(ids), err, many+2)
		}
		var seen []agent.ServiceInfo
		if err := w.loop.ServicesInfo(w.Context(), append(ids, model.ServiceID{Name: "gone"}), func(k agent.ServiceInfo) { seen = append(seen, k) }); err != nil {
			w.Fatal(err)
		}
		for i, k := range seen {
			if k.ID != ids[i] {
				w.Fatalf("service %d is %v, want %v", i, k.ID, ids[i])
			}
		}
		first, last := seen[0], seen[len(seen)-1]
		if len(seen) != len(ids) || first.Skipped == "" || len(first.Frontends) > 0 {
			w.Errorf("%d services, the first is %+v, want %d, and it skipped", len(seen), first, len(ids))
		}
		if len(last.Frontends) != 1 || len(last.Lost) != 1 || last.Lost[0].Loser != late.ID {
			w.Errorf("the last is %+v, want it to have lost what it wants", last)
		}
	})
}
