package ipsettest_test

import (
	"testing"

	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
)

func TestFakeKeepsContract(t *testing.T) {
	ipsettest.Contract(t, func(*testing.T) ipsettest.Subject {
		f := ipsettest.New()
		return ipsettest.Subject{Client: f, Refer: func(name string) { f.Refer(name, 1) }}
	})
}
