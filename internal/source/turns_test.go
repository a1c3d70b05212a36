package source_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Reading goes on until as much has been brought as may be, and again when the turn is over.
func TestTurns(t *testing.T) {
	for name, tt := range map[string]struct {
		few           int
		brought, read int64
	}{"nothing may come": {0, 0, 0}, "something may": {2, 2, 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var turns source.Turns
				release := turns.Hold(tt.few, time.Second)
				var brought, read atomic.Int64
				go func() {
					for range 5 {
						turns.Read()
						read.Add(1)
						turns.Bring()
						brought.Add(1)
					}
				}()
				synctest.Wait()
				if b, r := brought.Load(), read.Load(); b != tt.brought || r != tt.read {
					t.Errorf("%d brought, %d read while held, want %d and %d", b, r, tt.brought, tt.read)
				}
				release()
				synctest.Wait()
				if b, r := brought.Load(), read.Load(); b != 5 || r != 5 {
					t.Errorf("%d brought, %d read then, want 5", b, r)
				}
			})
		})
	}
}

func TestNobodysTurns(t *testing.T) {
	var none *source.Turns
	none.Read()
	none.Bring()
}
