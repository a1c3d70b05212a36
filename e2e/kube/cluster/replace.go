package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Replacement gives an endpoint of an EndpointSlice another address.
type Replacement struct {
	Namespace, Slice string
	Endpoint         int // its place in the slice, from 0
	Address          string
}

// replacers is how many requests Replace has under way.
const replacers = 8

// replaced counts what the last call of Replace wrote.
type replaced struct {
	mu sync.Mutex // held by Replace
	n  int64
}

// Replace makes changes in order, so many a second, until all are made or ctx ends; a server that cannot follow slows it down. For a guest
// the host makes them: fifty a second are half a processor of an emulated machine, which what is tested should have.
func (c *Cluster) Replace(ctx context.Context, changes []Replacement, rate int) error {
	if rate <= 0 {
		return fmt.Errorf("replace endpoints: %d changes a second", rate)
	}
	c.replaced.mu.Lock()
	defer c.replaced.mu.Unlock()
	c.replaced.n = 0
	client, err := c.clientset(ctx)
	if err != nil {
		return err
	}
	// Requests that were begun are ended, so that their number is known.
	group, working := errgroup.WithContext(context.WithoutCancel(ctx))
	group.SetLimit(replacers)
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for _, r := range changes {
		select {
		case <-ctx.Done():
			return group.Wait()
		case <-working.Done():
			return group.Wait()
		case <-ticker.C:
		}
		c.replaced.n++
		group.Go(func() error {
			patch, err := r.patch()
			if err == nil {
				_, err = client.DiscoveryV1().EndpointSlices(r.Namespace).Patch(working, r.Slice, types.JSONPatchType, patch, metav1.PatchOptions{})
			}
			if err != nil {
				return fmt.Errorf("replace endpoint %d of slice %s/%s: %w", r.Endpoint, r.Namespace, r.Slice, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// patch is a JSON patch (RFC 6902).
func (r Replacement) patch() ([]byte, error) {
	type operation struct {
		Op    string   `json:"op"`
		Path  string   `json:"path"`
		Value []string `json:"value"`
	}
	return json.Marshal([]operation{{"replace", "/endpoints/" + strconv.Itoa(r.Endpoint) + "/addresses", []string{r.Address}}})
}

// Replaced is how many changes the last call of Replace made, for which it waits.
func (c *Cluster) Replaced(context.Context) (int64, error) {
	c.replaced.mu.Lock()
	defer c.replaced.mu.Unlock()
	return c.replaced.n, nil
}
