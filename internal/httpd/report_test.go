package httpd_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/httpd"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
)

// agent is a source of reports that can hang.
type agent struct {
	mu       sync.Mutex
	hang     chan struct{} // nil: answers at once
	deaf     bool          // hangs beyond its deadline, too
	begun    int
	underWay int
	most     int
}

func (a *agent) report(ctx context.Context) httpd.Report {
	a.mu.Lock()
	a.begun++
	a.underWay++
	a.most = max(a.most, a.underWay)
	hang, deaf, r := a.hang, a.deaf, well()
	r.Checks = append(r.Checks, httpd.Check{Name: "round " + string(rune('0'+a.begun)), Ready: true})
	a.mu.Unlock()
	if hang != nil {
		done := ctx.Done()
		if deaf {
			done = nil
		}
		select {
		case <-hang:
		case <-done:
		}
	}
	a.mu.Lock()
	a.underWay--
	a.mu.Unlock()
	return r
}

func (a *agent) set(hang chan struct{}, deaf bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hang, a.deaf = hang, deaf
}

func (a *agent) counts() (begun, most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.begun, a.most
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestAnAgentThatHangsIsNotWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		p := serve(t, httpd.HealthHandler(httpd.HealthOptions{Report: a.report}))
		paths := gets("/healthz", "/livez", "/readyz")
		hang := make(chan struct{})
		a.set(hang, true)
		before := time.Now()
		text := "## no report yet\n\n" + p.transcript(t, paths...)
		if took := time.Since(before); took != 15*time.Second {
			t.Errorf("three requests took %v, want 5s each", took)
		}

		close(hang)
		synctest.Wait()
		a.set(nil, false)
		text += "## it answers again\n\n" + p.transcript(t, paths...)

		hang = make(chan struct{})
		a.set(hang, true)
		text += "## and hangs again: what was last known is shown\n\n" + p.transcript(t, paths...)
		close(hang)
		golden.Check(t, "health_hangs.txt", text)
	})
}

// Probes go on coming while the loop hangs; they must not pile up in it.
func TestManyProbesAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		hang := make(chan struct{})
		a.set(hang, true)
		h := httpd.HealthHandler(httpd.HealthOptions{Report: a.report})
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				if w := get(h, "/livez"); w.Code != http.StatusServiceUnavailable {
					t.Errorf("code %d from an agent that hangs", w.Code)
				}
			})
		}
		group.Wait()
		if begun, most := a.counts(); begun != 1 || most != 1 {
			t.Errorf("%d reports begun, %d at a time, want one", begun, most)
		}
		a.set(nil, false)
		close(hang)
		if w := get(h, "/livez"); w.Code != http.StatusOK {
			t.Errorf("code %d after it came back: %s", w.Code, w.Body)
		}
	})
}

// A report that was begun before a request came may be of a time before it.
func TestEachRequestGetsAReportBegunAfterItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		hang := make(chan struct{})
		a.set(hang, true)
		h := httpd.HealthHandler(httpd.HealthOptions{Report: a.report})
		bodies := make([]string, 3)
		var group sync.WaitGroup
		for i := range bodies {
			group.Go(func() { bodies[i] = get(h, "/readyz").Body.String() })
			synctest.Wait() // it waits for the agent now
		}
		close(hang)
		group.Wait()
		for i, want := range []string{"round 1", "round 2", "round 2"} {
			if !strings.Contains(bodies[i], want) {
				t.Errorf("request %d got %s, want %s", i, bodies[i], want)
			}
		}
	})
}

// An agent that minds the deadline returns what it has; that is not to be believed.
func TestAReportAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		a.set(make(chan struct{}), false)
		h := httpd.HealthHandler(httpd.HealthOptions{Report: a.report})
		before := time.Now()
		if w := get(h, "/livez"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("code %d for a report that was cut short: %s", w.Code, w.Body)
		}
		if took := time.Since(before); took != 5*time.Second {
			t.Errorf("took %v, want 5s", took)
		}
		synctest.Wait()
		a.set(nil, false)
		if w := get(h, "/livez"); w.Code != http.StatusOK {
			t.Errorf("code %d after it came back: %s", w.Code, w.Body)
		}
	})
}

func TestARequestThatIsWithdrawnWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		hang := make(chan struct{})
		a.set(hang, true)
		h := httpd.HealthHandler(httpd.HealthOptions{Report: a.report})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before := time.Now()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/livez", nil))
		if took := time.Since(before); took != time.Second {
			t.Errorf("took %v, want 1s", took)
		}
		close(hang)
	})
}
