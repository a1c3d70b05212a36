package agent_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Where something changes all the time the log has a line a second after the first few, and
// no pass is missing in it.
func TestUpdatesAreToldTogether(t *testing.T) {
	m := newMode()
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(5 * time.Second)
		w.logs.TakeAll()
		for i := range 200 {
			w.SetService(service(fmt.Sprint("s", i), fmt.Sprintf("10.96.1.%d", i+1)))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		lines, passes, services := 0, int64(0), int64(0)
		for _, e := range w.logs.FilterMessage("kernel updated").All() {
			lines++
			f := e.ContextMap()
			services += f["services"].(int64)
			if n, several := f["passes"].(int64); several {
				passes += n
			} else {
				passes++
			}
		}
		if lines < 10 || lines > 32 || passes < 200 || services != 200 {
			w.Errorf("%d lines tell of %d passes with %d services, want 8 and one a second, 200 or more, and 200", lines, passes, services)
		}
	})
}
