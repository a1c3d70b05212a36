package ipset_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Each exchange is reported once; rows that the kernel refuses are no failure of it.
func TestExchangesAreToldOf(t *testing.T) {
	told, failed := 0, error(nil)
	h := ipset.OpenInside(t, ipset.Options{Called: func(took time.Duration, err error) {
		told++
		failed = errors.Join(failed, err)
		if took < 0 || took > time.Minute {
			t.Errorf("it took %s", took)
		}
	}})
	told = 0 // of opening it
	if _, err := h.Stat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if told == 0 || failed != nil {
		t.Errorf("told of %d exchanges, failed: %v", told, failed)
	}
}
