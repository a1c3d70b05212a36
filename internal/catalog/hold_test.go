package catalog_test

import (
	"fmt"
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
				brought := 0
				go func() {
					for i := range 5 {
						c.SetService(model.Service{ID: model.ServiceID{Namespace: "shop", Name: fmt.Sprint(i)}})
						brought++
					}
				}()
				time.Sleep(500 * time.Millisecond)
				synctest.Wait()
				if brought != 2 {
					t.Errorf("%d Services came while held, want 2", brought)
				}
				if release {
					open()
				} else {
					time.Sleep(500 * time.Millisecond)
				}
				synctest.Wait()
				if got := len(c.Take().Services); brought != 5 || got != 5 {
					t.Errorf("%d of %d Services are there, want 5", got, brought)
				}
				open()
				c.SetService(model.Service{ID: model.ServiceID{Namespace: "shop", Name: "later"}})
			})
		})
	}
}
