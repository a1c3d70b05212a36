package scenarios_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// protocolOptions are what `ipvsadm -Sn` calls the protocols of `ipvsadm -Ln`.
var protocolOptions = map[string]string{"TCP": "-t", "UDP": "-u", "SCTP": "--sctp-service"}

// withThresholds adds to what `ipvsadm -Sn` prints the thresholds of destinations, which
// it leaves out, from what `ipvsadm -Ln --thresholds` prints.
func withThresholds(saved, listed string) string {
	options, server := map[string]string{}, ""
	for line := range strings.Lines(listed) {
		f := strings.Fields(line)
		switch {
		case len(f) >= 2 && protocolOptions[f[0]] != "":
			server = protocolOptions[f[0]] + " " + f[1]
		case len(f) == 6 && f[0] == "->":
			options[server+" -r "+f[1]] = threshold(" -x ", f[2]) + threshold(" -y ", f[3])
		}
	}
	var out strings.Builder
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		if f := strings.Fields(line); len(f) > 5 && f[0] == "-a" {
			line += options[strings.Join(f[1:5], " ")]
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

func threshold(option, value string) string {
	if value == "0" {
		return ""
	}
	return option + value
}

func TestThresholdsAreAdded(t *testing.T) {
	const saved = `-A -t 10.96.0.10:80 -s rr
-a -t 10.96.0.10:80 -r 10.244.1.5:8080 -m -w 1
-a -t 10.96.0.10:80 -r 10.244.2.5:8080 -m -w 2
-A -u [fd00::10]:53 -s rr -o
-a -u [fd00::10]:53 -r [fd00::5]:53 -m -w 1
-A -f 7 -s rr
-a -f 7 -r 10.244.1.5:0 -m -w 1
`
	const listed = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port            Uthreshold Lthreshold ActiveConn InActConn
  -> RemoteAddress:Port
TCP  10.96.0.10:80 rr
  -> 10.244.1.5:8080              1000       800        0          0         
  -> 10.244.2.5:8080              0          0          3          4         
UDP  [fd00::10]:53 rr ops
  -> [fd00::5]:53                 9          0          0          0         
FWM  7 rr
  -> 10.244.1.5:0                 0          0          0          0         
`
	const want = `-A -t 10.96.0.10:80 -s rr
-a -t 10.96.0.10:80 -r 10.244.1.5:8080 -m -w 1 -x 1000 -y 800
-a -t 10.96.0.10:80 -r 10.244.2.5:8080 -m -w 2
-A -u [fd00::10]:53 -s rr -o
-a -u [fd00::10]:53 -r [fd00::5]:53 -m -w 1 -x 9
-A -f 7 -s rr
-a -f 7 -r 10.244.1.5:0 -m -w 1
`
	if diff := cmp.Diff(want, withThresholds(saved, listed)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
