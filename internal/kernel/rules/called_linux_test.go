package rules_test

import (
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// Each process that a Handle runs is told of, as it is counted.
func TestProcessesAreToldOf(t *testing.T) {
	namespace(t)
	needBackend(t, rules.NFT)
	var told uint64
	h := newHandle(t, rules.Options{Backend: rules.NFT, Called: func(took time.Duration, err error) {
		told++
		if err != nil || took <= 0 {
			t.Errorf("it took %s: %v", took, err)
		}
	}})
	if _, _, err := h.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := h.Counters(); told == 0 || told != c.Save+c.Restore+c.Jump {
		t.Errorf("told of %d processes, counted %+v", told, c)
	}
}
