package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// fieldsOf lists the paths of the fields of a type, as they are in a file.
func fieldsOf(t reflect.Type, path string) []string {
	var out []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Name == "TypeMeta":
		case f.Anonymous && name == "":
			out = append(out, fieldsOf(f.Type, path)...)
		case f.Type.Kind() == reflect.Struct && isGroup(f.Type):
			out = append(out, fieldsOf(f.Type, join(path, name))...)
		default:
			out = append(out, join(path, name))
		}
	}
	return out
}

// isGroup tells a struct of settings from a value that is one for its own reasons.
func isGroup(t reflect.Type) bool {
	_, value := reflect.New(t).Interface().(json.Unmarshaler)
	return !value
}

// TestTableHoldsEveryField: a setting that is missing in the table could be neither
// given nor misspelt with an effect.
func TestTableHoldsEveryField(t *testing.T) {
	var s Settings
	for _, tt := range []struct {
		document any
		rows     []setting
	}{{s.Proxy, proxySettings}, {s.Own, ownSettings}} {
		var rows []string
		for _, row := range tt.rows {
			rows = append(rows, row.field)
		}
		fields := fieldsOf(reflect.TypeOf(tt.document), "")
		slices.Sort(fields)
		slices.Sort(rows)
		if !slices.Equal(fields, rows) {
			t.Errorf("%T has %q, the table %q", tt.document, without(fields, rows), without(rows, fields))
		}
	}
}

func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// samples are two values for each kind of setting, as a file has them and as a flag
// does. For those that are checked, some that are good.
func samples(row setting) (file, flag string) {
	special := map[string][2]string{
		"mode": {"iptables", "ipvs"}, "ipvs.scheduler": {"wlc", "sh"}, "ipvs.minSyncPeriod": {"2s", "3s"}, "detectLocalMode": {"ClusterCIDR", "NodeCIDR"},
		"ipvs.excludeCIDRs": {`["10.1.0.0/16"]`, "10.2.0.0/16"}, "clusterCIDR": {"10.1.0.0/16", "10.2.0.0/16"}, "nodePortAddresses": {`["primary"]`, "localhost,all"},
		"bindAddress": {"192.0.2.1", "192.0.2.2"}, "healthzBindAddress": {"192.0.2.1:1", "192.0.2.2:2"}, "metricsBindAddress": {"192.0.2.1:3", "192.0.2.2:4"},
		"logging.format": {"json", "text"}, "logging.vmodule": {`[{"filePattern": "a", "verbosity": 1}]`, "b=2"}, "featureGates": {`{"KubeProxyIPVS": true}`, "KubeProxyIPVS=false"},
		"runDir": {"/a", "/b"}, "iptablesBackend": {"nft", "legacy"}, "serviceNodePortRange": {"30000-30100", "31000-31100"},
		"externalIPAllowedCIDRs": {`["10.1.0.0/16"]`, "10.2.0.0/16"}, "dnsServices": {`["a/b"]`, "c/d"}, "watchNodes": {"own", "all"}, "onMissingIPVS": {"fail", "iptables"}, "logLevel": {"warn", "error"}, "iptables.localhostNodePorts": {"true", "false"},
		"vipBinding": {"route\nserviceCIDRs: [10.96.0.0/16]", "address"}, "externalBinding": {"bind", "capture"}, "serviceCIDRs": {`["10.96.0.0/16"]`, "10.97.0.0/16"},
	}
	if s, ok := special[row.field]; ok {
		return s[0], s[1]
	}
	switch fmt.Sprintf("%T", row.at(new(Settings))) {
	case "*string":
		return "a", "b"
	case "*bool":
		return "false", "true"
	case "*v1.Duration", "**v1.Duration", "*v1.TimeOrMetaDuration":
		return "20s", "40s"
	}
	return "7", "8"
}

// nested is a document with one field.
func nested(kind, version, path, value string) string {
	text := value
	for _, name := range slices.Backward(strings.Split(path, ".")) {
		text = "{" + name + ": " + text + "}"
	}
	return fmt.Sprintf("apiVersion: %s\nkind: %s\n%s\n", version, kind, strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}"))
}

// TestFlagBeatsFile: for every setting that is both, the value of the file is used without the
// flag, and the flag's value with it. An overridden value of the file is reported.
func TestFlagBeatsFile(t *testing.T) {
	pairs := 0
	for _, list := range [][]setting{proxySettings, ownSettings} {
		for _, row := range list {
			if row.flag == "" {
				continue
			}
			pairs++
			t.Run(row.flag, func(t *testing.T) {
				file, flag := samples(row)
				kind, version := proxyKind, "kubeproxy.config.k8s.io/v1alpha1"
				if slices.ContainsFunc(ownSettings, func(o setting) bool { return o.flag == row.flag }) {
					kind, version = OwnKind, OwnAPIVersion
				}
				text := nested(kind, version, row.field, file)
				byFile, _ := settled(t, row, text)
				both, overrides := settled(t, row, text, "--"+row.flag+"="+flag)
				byLine, none := settled(t, row, "", "--"+row.flag+"="+flag)
				if both != byLine || byFile == both {
					t.Errorf("file says %s, flag %s, both %s", byFile, byLine, both)
				}
				if !slices.Equal(overrides, []string{"--" + row.flag}) || none != nil {
					t.Errorf("overrides %v of a file, %v without", overrides, none)
				}
			})
		}
	}
	if pairs < 45 {
		t.Errorf("%d pairs, want all", pairs)
	}
}

// settled is what a setting has in the end, as text. An error of Check is none here:
// kube-proxy's other modes are settings, too.
func settled(t *testing.T, row setting, file string, args ...string) (value string, overrides []string) {
	t.Helper()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	s := Defaults()
	Bind(fs, &s)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	base := &fileReader{settings: Defaults()}
	if file != "" {
		var err error
		if base, err = readFile("FILE", []byte(file)); err != nil || len(base.mistakes)+len(base.warnings) > 0 {
			t.Fatal(err, base.mistakes, base.warnings, file)
		}
	}
	got := base.settings
	overrides, err := NewLoader(fs).overlay(&got)
	if err != nil {
		t.Fatal(err)
	}
	p := problems{s: &got}
	p.featureGates()
	got.Proxy.FeatureGates = p.gates
	text, err := json.Marshal(row.at(&got))
	if err != nil {
		t.Fatal(err)
	}
	return string(text), overrides
}

// TestEveryMeaningIsKnown: the effect of a reload on a field of Config is defined for
// each one, and each name is one that a person can find.
func TestEveryMeaningIsKnown(t *testing.T) {
	var listed []string
	for _, m := range meanings {
		listed = append(listed, m.of)
		_, isField := byField[m.name]
		_, isFlag := byFlag[strings.TrimPrefix(m.name, "--")]
		if m.when != never && !isField && !isFlag && m.name != "detectLocal" || m.when == atOnce && !isField {
			t.Errorf("%s: %q is no setting", m.of, m.name)
		}
	}
	fields := leaves(reflect.TypeFor[Config](), "")
	slices.Sort(fields)
	slices.Sort(listed)
	if !slices.Equal(fields, listed) {
		t.Errorf("not classified: %q; listed and gone: %q", without(fields, listed), without(listed, fields))
	}
}

// leaves are the fields of Config, those of its own groups one by one.
func leaves(t reflect.Type, path string) []string {
	groups := []reflect.Type{reflect.TypeFor[Client](), reflect.TypeFor[Timeouts](), reflect.TypeFor[Conntrack](), reflect.TypeFor[DetectLocal]()}
	var out []string
	for f := range t.Fields() {
		switch {
		case !f.IsExported():
		case f.Anonymous:
			out = append(out, leaves(f.Type, path)...)
		case slices.Contains(groups, f.Type):
			out = append(out, leaves(f.Type, join(path, f.Name))...)
		default:
			out = append(out, join(path, f.Name))
		}
	}
	return out
}
