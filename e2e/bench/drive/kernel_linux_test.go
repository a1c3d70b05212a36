package drive

import (
	"strings"
	"testing"
)

func TestCountIPVS(t *testing.T) {
	const list = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:0050 rr  
  -> 0A800002:1F90      Masq    1      0          0         
  -> 0A800001:1F90      Masq    1      0          0         
UDP  [2001:0db8:0000:0000:0000:0000:0000:0001]:0035 rr persistent 10800 FFFFFFFF
FWM  00000001 rr  
`
	servers, destinations, err := countIPVS(strings.NewReader(list))
	if err != nil || servers != 3 || destinations != 2 {
		t.Errorf("%d servers with %d destinations, %v, want 3 with 2", servers, destinations, err)
	}
	if servers, destinations, err := countIPVS(strings.NewReader("")); err != nil || servers+destinations != 0 {
		t.Errorf("nothing has %d servers with %d destinations, %v", servers, destinations, err)
	}
}

func TestCountRules(t *testing.T) {
	const saved = "# Generated\n*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n-A KUBE-SERVICES -m comment --comment \"x -A y\" -j RETURN\nCOMMIT\n"
	if n := countRules([]byte(saved)); n != 2 {
		t.Errorf("%d rules, want 2", n)
	}
}
