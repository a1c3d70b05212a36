package main

import "testing"

// TestOlder: the version, devices, limits of CPU time and message queues change, and every other value stays, digits of limits included.
func TestOlder(t *testing.T) {
	const text = `{"linux":{"resources":{"cpu":{"period":100000,"quota":-1,"shares":51},"devices":[{"allow":false}],"memory":{"limit":9223372036854775807}}},` +
		`"mounts":[{"type":"proc"},{"type":"mqueue"}],"ociVersion":"1.3.0"}`
	for queues, want := range map[bool]string{
		false: `{"linux":{"resources":{"cpu":{"shares":51},"memory":{"limit":9223372036854775807}}},"mounts":[{"type":"proc"}],"ociVersion":"1.0.2"}`,
		true:  `{"linux":{"resources":{"cpu":{"shares":51},"memory":{"limit":9223372036854775807}}},"mounts":[{"type":"proc"},{"type":"mqueue"}],"ociVersion":"1.0.2"}`,
	} {
		got, err := older([]byte(text), queues)
		if err != nil || string(got) != want {
			t.Errorf("queues %t: %s, %v; want %s", queues, got, err, want)
		}
	}
	if _, err := older([]byte("{"), true); err == nil {
		t.Error("half a configuration is taken")
	}
}

// TestAdaptWithoutBundle: calls that start nothing pass.
func TestAdaptWithoutBundle(t *testing.T) {
	for _, args := range [][]string{{"oci", "state", "x"}, {"oci", "create", "--bundle"}, {"oci", "create", "--bundle", t.TempDir()}} {
		if err := adapt(args); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}
