package manifests_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// monitored is what the chart and the component use of the objects of Prometheus' operator.
type monitored struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            struct {
		Groups              []any                 `json:"groups,omitempty"`
		Selector            *metav1.LabelSelector `json:"selector,omitempty"`
		PodMetricsEndpoints []struct {
			Port        string `json:"port"`
			Interval    string `json:"interval"`
			HonorLabels bool   `json:"honorLabels"`
		} `json:"podMetricsEndpoints,omitempty"`
	} `json:"spec"`
}

// helm is the program that make lint builds into the cache; without it the test is skipped.
func helm(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^HELM +:= \S+@(v\S+)$`).FindSubmatch(read(t, "../Makefile"))
	if m == nil {
		t.Fatal("the Makefile does not say which helm is used")
	}
	cache := os.Getenv("KUBE_IPVS_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Skip(err)
		}
		cache = filepath.Join(dir, "kube-ipvs")
	}
	program := filepath.Join(cache, "bin", "helm-"+string(m[1]))
	if _, err := os.Stat(program); err != nil {
		t.Skip("no helm in the cache, make lint builds it: ", err)
	}
	return program
}

// render returns what helm makes of the chart, by "Kind name".
func render(t *testing.T, flags ...string) map[string]any {
	t.Helper()
	out, err := template(t, flags...)
	if err != nil {
		t.Fatalf("helm template %v: %v\n%s", flags, err, out)
	}
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return objects(t, file)
}

func template(t *testing.T, flags ...string) ([]byte, error) {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd := exec.Command(helm(t), append([]string{"template", "proxy", "chart", "--namespace", "kube-system"}, flags...)...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return stderr.Bytes(), err
	}
	return out.Bytes(), nil
}

// chartLabels are those that the chart adds to what the base has.
var chartLabels = map[string]string{
	"app.kubernetes.io/instance": "proxy", "app.kubernetes.io/version": "dev", "app.kubernetes.io/component": "node-proxy",
	"app.kubernetes.io/part-of": "kube-ipvs", "app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "kube-ipvs-0.0.0",
}

// unlabel fails unless all labels of the chart are there, and removes them.
func unlabel(t *testing.T, where string, labels map[string]string) {
	t.Helper()
	for key, value := range chartLabels {
		if labels[key] != value {
			t.Errorf("%s: label %s is %q, want %q", where, key, labels[key], value)
		}
		delete(labels, key)
	}
}

// The chart with its defaults is the base: the same objects, and a ConfigMap with the same settings.
func TestChartIsTheBase(t *testing.T) {
	want, got := objects(t, base(t)...), render(t)
	for key, o := range got {
		unlabel(t, key, o.(metav1.Object).GetLabels())
		if d, ok := o.(*appsv1.DaemonSet); ok {
			unlabel(t, "pods", d.Spec.Template.Labels)
		}
	}
	args := []string{"--config=" + mounted + "config.conf"}
	const key = "ConfigMap kube-ipvs"
	ours, theirs := want[key].(*corev1.ConfigMap), got[key].(*corev1.ConfigMap)
	if live, restart := config.Compare(load(t, args, ours.Data), load(t, args, theirs.Data)); len(live)+len(restart) > 0 {
		t.Errorf("other settings than those of the base: %v %v", live, restart)
	}
	equal(t, "kubeconfig", document(t, ours.Data["kubeconfig.conf"]), document(t, theirs.Data["kubeconfig.conf"]))
	ours.Data, theirs.Data = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other objects than those of the base (-base +chart):\n%s", diff)
	}
}

func document(t *testing.T, text string) (value any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// A value that is set reaches the agent.
func TestChartValues(t *testing.T) {
	got := render(t, "--set", "config.clusterCIDR=10.244.0.0/16,config.ipvs.scheduler=wlc,settings.drain=45s,image.repository=registry.example/kube-ipvs,image.tag=v1",
		"--set", "nodeSelector.pool=edge,resources.limits.memory=1Gi,apiServer=https://10.0.0.1:6443", "--set-json", `tolerations=[{"key":"a"}]`)
	files := got["ConfigMap kube-ipvs"].(*corev1.ConfigMap).Data
	c := load(t, []string{"--config=" + mounted + "config.conf"}, files)
	equal(t, "scheduler", "wlc", c.Scheduler.Name())
	equal(t, "drain", 45*time.Second, c.Drain)
	equal(t, "API server", true, strings.Contains(files["kubeconfig.conf"], `server: "https://10.0.0.1:6443"`))
	pod := got["DaemonSet kube-ipvs"].(*appsv1.DaemonSet).Spec.Template.Spec
	equal(t, "image", "registry.example/kube-ipvs:v1", only(t, pod.Containers).Image)
	equal(t, "nodes", map[string]string{"kubernetes.io/os": "linux", "pool": "edge"}, pod.NodeSelector)
	equal(t, "tolerations", []corev1.Toleration{{Key: "a"}}, pod.Tolerations)
	limit := only(t, pod.Containers).Resources.Limits[corev1.ResourceMemory]
	equal(t, "memory", "1Gi", limit.String())
}

// A takeover reads kube-proxy's ConfigMap and touches only nodes with the label.
func TestChartTakeover(t *testing.T) {
	got := render(t, "--set", "kubeProxy.takeover=true")
	if got["ConfigMap kube-ipvs"] != nil {
		t.Error("the chart has a ConfigMap that nothing reads")
	}
	pod := got["DaemonSet kube-ipvs"].(*appsv1.DaemonSet).Spec.Template.Spec
	equal(t, "ConfigMap", "kube-proxy", pod.Volumes[0].ConfigMap.Name)
	equal(t, "nodes", map[string]string{"kubernetes.io/os": "linux", "kube-ipvs.io/proxy": "kube-ipvs"}, pod.NodeSelector)
	role := got["ClusterRole kube-ipvs"].(*rbacv1.ClusterRole)
	equal(t, "rights", object[*rbacv1.ClusterRole](t, base(t)...).Rules, role.Rules)
}

// Monitoring opens the port that it scrapes, and has the alerts of manifests/monitoring.
func TestChartMonitoring(t *testing.T) {
	got := render(t, "--set", "podMonitor.enabled=true,prometheusRule.enabled=true,podMonitor.labels.team=net")
	container := only(t, got["DaemonSet kube-ipvs"].(*appsv1.DaemonSet).Spec.Template.Spec.Containers)
	monitor := got["PodMonitor kube-ipvs"].(*monitored)
	checkMonitoring(t, container, monitor, got["PrometheusRule kube-ipvs"].(*monitored))
	equal(t, "label", "net", monitor.Metadata.Labels["team"])
}

func checkMonitoring(t *testing.T, container corev1.Container, monitor, rules *monitored) {
	t.Helper()
	endpoint := monitor.Spec.PodMetricsEndpoints[0]
	equal(t, "port", container.Ports[0].Name, endpoint.Port)
	equal(t, "metrics keep their labels", true, endpoint.HonorLabels)
	equal(t, "selector", map[string]string{"k8s-app": "kube-ipvs"}, monitor.Spec.Selector.MatchLabels)
	c := load(t, container.Args[1:], nil)
	equal(t, "metrics", "0.0.0.0:10249", c.Metrics)
	var alerts struct{ Groups []any }
	if err := yaml.Unmarshal(read(t, "monitoring/kube-ipvs.rules.yaml"), &alerts); err != nil {
		t.Fatal(err)
	}
	equal(t, "alerts", alerts.Groups, rules.Spec.Groups)
}

// The component for kustomize has what the chart has.
func TestMonitoringComponent(t *testing.T) {
	d := merged(t, "base/daemonset.yaml", "components/monitoring/daemonset.yaml")
	all := objects(t, "components/monitoring/podmonitor.yaml", "components/monitoring/prometheusrule.yaml")
	checkMonitoring(t, only(t, d.Spec.Template.Spec.Containers), all["PodMonitor kube-ipvs"].(*monitored), all["PrometheusRule kube-ipvs"].(*monitored))
	equal(t, "other arguments", only(t, object[*appsv1.DaemonSet](t, base(t)...).Spec.Template.Spec.Containers).Args, only(t, d.Spec.Template.Spec.Containers).Args[:2])
}

// Rules that the chart packs are those of manifests/monitoring.
func TestChartHasTheAlerts(t *testing.T) {
	if !bytes.Equal(read(t, "monitoring/kube-ipvs.rules.yaml"), read(t, "chart/files/kube-ipvs.rules.yaml")) {
		t.Error("chart/files/kube-ipvs.rules.yaml is out of date: make manifests")
	}
}

// jsonTypes are the fields of a configuration, with their types as a JSON schema names them.
func jsonTypes(of reflect.Type) map[string]string {
	out := map[string]string{}
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && f.Type != reflect.TypeFor[metav1.TypeMeta]() {
			maps.Copy(out, jsonTypes(f.Type))
		}
		if name == "" {
			continue
		}
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		switch kind.Kind() {
		case reflect.String:
			out[name] = "string"
		case reflect.Bool:
			out[name] = "boolean"
		case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Float32:
			out[name] = "number"
		case reflect.Slice:
			out[name] = "array"
		default:
			out[name] = "object"
			if kind == reflect.TypeFor[metav1.Duration]() {
				out[name] = "string"
			}
		}
	}
	return out
}

// The schema of the values knows each field of the ConfigMap, and no other.
func TestChartSchemaHasAllFields(t *testing.T) {
	var schema struct {
		Properties map[string]struct {
			Properties map[string]struct{ Type string }
		}
	}
	if err := json.Unmarshal(read(t, "chart/values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	for value, of := range map[string]reflect.Type{"config": reflect.TypeFor[kubeproxy.KubeProxyConfiguration](), "settings": reflect.TypeFor[config.KubeIPVSConfiguration]()} {
		got := map[string]string{}
		for name, p := range schema.Properties[value].Properties {
			got[name] = p.Type
		}
		if diff := cmp.Diff(jsonTypes(of), got); diff != "" {
			t.Errorf("%s (-fields +schema):\n%s", value, diff)
		}
	}
}

// Values are checked before anything is installed.
func TestChartSchema(t *testing.T) {
	text, err := jsonschema.UnmarshalJSON(bytes.NewReader(read(t, "chart/values.schema.json")))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("values", text); err != nil {
		t.Fatal(err)
	}
	schema := c.MustCompile("values")
	values := func(change string) any {
		both := map[string]any{}
		for _, source := range []string{string(read(t, "chart/values.yaml")), change} {
			if err := yaml.Unmarshal([]byte(source), &both); err != nil {
				t.Fatal(err)
			}
		}
		return both
	}
	for _, good := range []string{"", "settings: {drain: 45s}", "config: {mode: auto}", "kubeProxy: {takeover: true}", "tolerations: []"} {
		if err := schema.Validate(values(good)); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"settngs: {}", "settings: {drian: 45s}", "config: {mode: nftables}", "config: {ipvs: {shedule: rr}}", "kubeProxy: {takeover: \"yes\"}", "apiServer: 10.0.0.1", "podMonitor: {interval: soon}"} {
		if schema.Validate(values(bad)) == nil {
			t.Errorf("%q is allowed", bad)
		}
	}
	if out, err := template(t, "--set", "settings.drian=45s"); err == nil || !bytes.Contains(out, []byte("drian")) {
		t.Errorf("helm takes a setting that does not exist: %v\n%s", err, out)
	}
}
