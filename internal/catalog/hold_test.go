package catalog_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Who brings something waits for the release, or for the limit, and then nothing of it is lost.
func TestHold(t *testing.T) {
	for name, release := range map[string]bool{"released": true, "for too long": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := catalog.New(zap.NewNop(), "node-a")
				open := c.Hold(2, time.Second)
				var brought atomic.Int64 // read between two of its writes, which nothing orders
				go func() {
					for i := range 5 {
						c.SetService(model.Service{ID: model.ServiceID{Namespace: "shop", Name: fmt.Sprint(i)}})
						brought.Add(1)
					}
				}()
				time.Sleep(500 * time.Millisecond)
				synctest.Wait()
				if got := brought.Load(); got != 2 {
					t.Errorf("%d Services came while held, want 2", got)
				}
				if release {
					open()
				} else {
					time.Sleep(500 * time.Millisecond)
				}
				synctest.Wait()
				if got, put := len(c.Take().Services), brought.Load(); put != 5 || got != 5 {
					t.Errorf("%d of %d Services are there, want 5", got, put)
				}
				open()
				c.SetService(model.Service{ID: model.ServiceID{Namespace: "shop", Name: "later"}})
			})
		})
	}
}
