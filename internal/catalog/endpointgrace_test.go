package catalog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
)

// A service that comes new waits for its first slice, as long as it was told, and
// nothing else does.
func TestAwait(t *testing.T) {
	const patience = 100 * time.Millisecond
	tests := []struct {
		name string
		// before happens, and is taken, ahead of the change.
		before, change func(c *catalog.Catalog)
		now, later     string // the Services taken at once, and those taken when the grace is over
	}{
		{"without a slice", nil,
			func(c *catalog.Catalog) { c.SetService(service("a", 80)) },
			"", "default/a ports=1\n"},
		{"with a slice", nil,
			func(c *catalog.Catalog) { c.SetService(service("a", 80)); c.SetSlice(slice("a-1", "a", "10.0.0.1")) },
			"default/a ports=1 a-1,10.0.0.1\n", ""},
		{"after its slice", nil,
			func(c *catalog.Catalog) { c.SetSlice(slice("a-1", "a", "10.0.0.1")); c.SetService(service("a", 80)) },
			"default/a ports=1 a-1,10.0.0.1\n", ""},
		{"with a slice that went", nil,
			func(c *catalog.Catalog) {
				c.SetService(service("a", 80))
				c.SetSlice(slice("a-1", "a"))
				c.DeleteSlice(sliceID("a-1"))
			}, "", "default/a ports=1\n"},
		{"changed while it waits", nil,
			func(c *catalog.Catalog) { c.SetService(service("a", 80)); c.SetService(service("a", 80, 81)) },
			"", "default/a ports=2\n"},
		{"gone while it waits", nil,
			func(c *catalog.Catalog) { c.SetService(service("a", 80)); c.DeleteService(id("a")) },
			"default/a gone\n", ""},
		{"beside others",
			func(c *catalog.Catalog) { c.SetService(service("old", 80)) },
			func(c *catalog.Catalog) {
				c.SetService(service("a", 80))
				c.SetService(service("b", 80))
				c.SetService(service("old", 80, 81))
				c.SetSlice(slice("b-1", "b", "10.0.0.1"))
			},
			"default/b ports=1 b-1,10.0.0.1\ndefault/old ports=2\n", "default/a ports=1\n"},
		{"back before a batch had it gone",
			func(c *catalog.Catalog) { c.SetService(service("a", 80)) },
			func(c *catalog.Catalog) { c.DeleteService(id("a")); c.SetService(service("a", 81)) },
			"default/a ports=1\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCatalog(t)
				c.SetEndpointGrace(patience)
				if tt.before != nil {
					tt.before(c)
				}
				if b := c.Take(); !b.Held.IsZero() {
					t.Errorf("at the first Take services are held until %v", b.Held)
				}
				start := time.Now()
				tt.change(c)
				b := c.Take()
				if got := show(b); got != tt.now {
					t.Errorf("at once:\n%swant:\n%s", got, tt.now)
				}
				if waits := tt.later != ""; waits != b.Held.Equal(start.Add(patience)) || waits == b.Held.IsZero() {
					t.Errorf("held until %v, %v after the change", b.Held, b.Held.Sub(start))
				}
				time.Sleep(patience)
				if b = c.Take(); show(b) != tt.later || !b.Held.IsZero() {
					t.Errorf("later:\n%swant:\n%sheld until %v", show(b), tt.later, b.Held)
				}
			})
		})
	}
}

// A slice ends the waiting, and wakes who has to write.
func TestAwaitedSliceWakes(t *testing.T) {
	c := newCatalog(t)
	c.SetEndpointGrace(time.Hour)
	c.Take()
	c.SetService(service("a", 80))
	<-c.Wake()
	if b := c.Take(); show(b) != "" || b.Held.IsZero() {
		t.Errorf("taken:\n%sheld until %v", show(b), b.Held)
	}
	c.SetSlice(slice("a-1", "a", "10.0.0.1"))
	<-c.Wake()
	if b := c.Take(); show(b) != "default/a ports=1 a-1,10.0.0.1\n" || !b.Held.IsZero() {
		t.Errorf("taken:\n%sheld until %v", show(b), b.Held)
	}
}
