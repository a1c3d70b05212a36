package iptables_test

import (
	"strings"
	"testing"
)

func TestPendingInWords(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web)
	var words []string
	for _, table := range m.Pending(1000) {
		for _, r := range table.Rows {
			words = append(words, table.Table+" "+r.Op.String()+": "+r.Text())
		}
	}
	got := strings.Join(words, "\n")
	for _, want := range []string{
		"chains add: iptables -t nat -N KUBE-MARK-MASQ # and 1 rules\n",
		"entries add: iptables -t nat -I KUBE-SERVICES -d 10.96.0.10/32 ",
		"jumps add: iptables -t nat -I OUTPUT ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("pending lacks %q:\n%s", want, got)
		}
	}
	apply(t, m)
	if left := m.Pending(1000); len(left) != 0 {
		t.Errorf("in place, and %+v pending", left)
	}
}
