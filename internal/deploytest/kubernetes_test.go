package deploytest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	units "github.com/docker/go-units"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// built returns the objects that "kubectl apply -k" applies for a folder.
func built(t *testing.T, folder string) resmap.ResMap {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
		filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// decode reads an object of deploy/kustomization.yaml. A field that the kind does not have is an
// error.
func decode[T any](t *testing.T, kind, name string) (object T) {
	t.Helper()
	found := 0
	for _, r := range built(t, "deploy").Resources() {
		if r.GetKind() != kind || r.GetName() != name {
			continue
		}
		found++
		text, err := r.AsYAML()
		if err == nil {
			err = yaml.UnmarshalStrict(text, &object)
		}
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if found != 1 {
		t.Fatalf("%d objects are a %s with the name %s, want one", found, kind, name)
	}
	return object
}

// Kustomize builds both folders. The one without an operator contains only kinds that every cluster
// has.
//
// Fails when a file is missing, or an object for the operator is part of the program's folder.
func TestKustomizations(t *testing.T) {
	t.Parallel()
	for folder, want := range map[string]string{
		"deploy/kubernetes": "Deployment Job NetworkPolicy PodDisruptionBudget Service ServiceAccount",
		"deploy": "ConfigMap Deployment Job NetworkPolicy PodDisruptionBudget PrometheusRule Service Service " +
			"ServiceAccount ServiceMonitor",
	} {
		var kinds []string
		for _, r := range built(t, folder).Resources() {
			kinds = append(kinds, r.GetKind())
		}
		slices.Sort(kinds)
		if got := strings.Join(kinds, " "); got != want {
			t.Errorf("%s is %s, want %s", folder, got, want)
		}
	}
	dashboard := decode[core.ConfigMap](t, "ConfigMap", "tickslot-dashboard")
	if dashboard.Data["tickslot.json"] != read(t, "deploy/grafana/tickslot.json") ||
		dashboard.Labels["grafana_dashboard"] != "1" {
		t.Errorf("the sidecar does not find the dashboard by %v", dashboard.Labels)
	}
}

// The Job has the rights of the pods and runs an existing command.
//
// Fails when it uses another image or has more rights.
func TestMigrationJob(t *testing.T) {
	t.Parallel()
	job := decode[batch.Job](t, "Job", "settle-migrate")
	pod := decode[apps.Deployment](t, "Deployment", "settle").Spec.Template.Spec
	c, host := job.Spec.Template.Spec.Containers[0], pod.Containers[0]
	if c.Image != host.Image || !slices.Equal(c.Command, []string{"/tickslot", "migrate", "up", "--only", "locks"}) {
		t.Errorf("it runs %v of %s", c.Command, c.Image)
	}
	secret := func(c core.Container, name string) *core.SecretKeySelector {
		for _, e := range c.Env {
			if e.Name == name && e.ValueFrom != nil {
				return e.ValueFrom.SecretKeyRef
			}
		}
		t.Fatalf("%s has no %s", c.Name, name)
		return nil
	}
	if *secret(c, "TICKSLOT_STORE") != *secret(host, "DATABASE_URL") {
		t.Error("it is on another database than the program")
	}
	restricted(t, job.Spec.Template.Spec)
	if job.Spec.TTLSecondsAfterFinished == nil {
		t.Error("it stays, and the next one cannot be applied")
	}
}

// Requests reach the port for requests. Only Prometheus reaches the port for probes and metrics, on
// every pod, even on one that drains.
//
// Fails when the Service publishes the metrics, or when a port, label or selector is changed in
// only one place.
func TestMetricsHaveAPortOfTheirOwn(t *testing.T) {
	t.Parallel()
	d := decode[apps.Deployment](t, "Deployment", "settle")
	s := decode[core.Service](t, "Service", "settle-metrics")
	m := decode[monitoring.ServiceMonitor](t, "ServiceMonitor", "settle")
	if !selects(s.Spec.Selector, d) || !s.Spec.PublishNotReadyAddresses || s.Spec.ClusterIP != core.ClusterIPNone ||
		s.Spec.Ports[0].TargetPort.String() != "probes" {
		t.Errorf("the Service of metrics is %+v", s.Spec)
	}
	if e := m.Spec.Endpoints; len(e) != 1 || e[0].Port != s.Spec.Ports[0].Name || e[0].Path != "/metrics" ||
		!maps.Equal(m.Spec.Selector.MatchLabels, s.Labels) {
		t.Errorf("what is scraped is %+v", m.Spec)
	}
	p := decode[network.NetworkPolicy](t, "NetworkPolicy", "settle")
	ports := map[string]network.NetworkPolicyPeer{}
	for _, rule := range p.Spec.Ingress {
		if len(rule.From) != 1 || len(rule.Ports) != 1 {
			t.Fatalf("%+v", rule)
		}
		ports[rule.Ports[0].Port.String()] = rule.From[0]
	}
	if len(ports) != 2 || len(ports["http"].NamespaceSelector.MatchLabels) != 0 ||
		ports["probes"].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "monitoring" {
		t.Errorf("who may ask is %+v", ports)
	}
	selector, err := meta.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	job := decode[batch.Job](t, "Job", "settle-migrate")
	for _, pod := range []core.PodTemplateSpec{d.Spec.Template, job.Spec.Template} {
		if !selector.Matches(labels.Set(pod.Labels)) {
			t.Errorf("the policy is not for %v", pod.Labels)
		}
	}
}

// The rules for the Prometheus Operator equal those for Prometheus.
//
// Fails when only one of the files is changed.
func TestRulesOfTheOperator(t *testing.T) {
	t.Parallel()
	const path = "deploy/kubernetes/rules.yaml"
	_, groups, _ := strings.Cut(read(t, "deploy/prometheus/tickslot.rules.yml"), "\ngroups:\n")
	head, _, found := strings.Cut(read(t, path), "\nspec:\n")
	want := head + "\nspec:\n  groups:\n"
	for line := range strings.Lines(groups) {
		if line != "\n" {
			line = "  " + line
		}
		want += line
	}
	if !found || groups == "" {
		t.Fatal("the groups are not found")
	}
	if os.Getenv("UPDATE_RULES") != "" {
		if err := os.WriteFile(filepath.Join(root, path), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, path) != want {
		t.Errorf("%s has other rules: its first lines say how to renew it", path)
	}
	rule := decode[monitoring.PrometheusRule](t, "PrometheusRule", "tickslot")
	n := 0
	for _, g := range rule.Spec.Groups {
		n += len(g.Rules)
	}
	if n != strings.Count(groups, "- alert:") || n < 20 {
		t.Errorf("the operator reads %d rules", n)
	}
}

// The Deployment fits the program: its probes, its port, the time to end, and the secret from the
// environment.
//
// Fails when a field is misspelled, a probe is renamed, a port differs, or DrainTimeout or -prestop
// exceeds the grace period.
func TestDeployment(t *testing.T) {
	t.Parallel()
	d := decode[apps.Deployment](t, "Deployment", "settle")
	pod := d.Spec.Template.Spec
	if len(pod.Containers) != 1 {
		t.Fatalf("%d containers", len(pod.Containers))
	}
	c := pod.Containers[0]
	pinned(t, c.Image)
	if d.APIVersion != "apps/v1" || *d.Spec.Replicas < 2 || !selects(d.Spec.Selector.MatchLabels, d) {
		t.Errorf("%s, %d replicas, selector %v of %v", d.APIVersion, *d.Spec.Replicas, d.Spec.Selector,
			d.Spec.Template.Labels)
	}
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	if most := longest(t, "kubernetes", c.Args); grace <= most {
		t.Errorf("it kills the program after %v, which may take %v", grace, most)
	}
	if len(c.Ports) != 2 || port(t, c.Args, "-addr") != fmt.Sprint(c.Ports[0].ContainerPort) ||
		port(t, c.Args, "-probes") != fmt.Sprint(c.Ports[1].ContainerPort) {
		t.Errorf("the program serves at %v, its container at %+v", c.Args, c.Ports)
	}
	if pod.ServiceAccountName != decode[core.ServiceAccount](t, "ServiceAccount", "settle").Name {
		t.Errorf("it is %s", pod.ServiceAccountName)
	}
	for i, p := range []*core.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != probes[i] || p.HTTPGet.Port.String() != c.Ports[1].Name {
			t.Errorf("the probe is %+v, want one of %s", p, probes[i])
		}
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		t.Error("the program waits by itself: it needs no preStop hook")
	}
	for _, e := range c.Env {
		if e.Name == "GOMEMLIMIT" {
			continue
		}
		if e.Value != "" || e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
			t.Errorf("%s is no secret", e.Name)
		}
		if !strings.Contains(read(t, "examples/kubernetes/main.go"), `os.Getenv("`+e.Name+`")`) {
			t.Errorf("the program does not know %s", e.Name)
		}
	}
}

// The pod has only the rights that the program needs, as the Kubernetes policy "restricted"
// demands.
//
// Fails when a removed right is granted again, or a resource request is missing.
func TestPodIsRestricted(t *testing.T) {
	t.Parallel()
	restricted(t, decode[apps.Deployment](t, "Deployment", "settle").Spec.Template.Spec)
}

func restricted(t *testing.T, pod core.PodSpec) {
	t.Helper()
	c := pod.Containers[0]
	var soft int64
	for _, e := range c.Env {
		if e.Name == "GOMEMLIMIT" {
			soft, _ = units.RAMInBytes(e.Value)
		}
	}
	p, s := pod.SecurityContext, c.SecurityContext
	if p == nil || s == nil || p.SeccompProfile == nil || s.Capabilities == nil {
		t.Fatalf("%+v %+v", p, s)
	}
	asked := c.Resources.Requests
	for what, is := range map[string]bool{
		"runAsNonRoot":                isTrue(p.RunAsNonRoot),
		"runAsUser":                   p.RunAsUser != nil && *p.RunAsUser > 0,
		"seccompProfile":              p.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault,
		"no allowPrivilegeEscalation": isFalse(s.AllowPrivilegeEscalation),
		"readOnlyRootFilesystem":      isTrue(s.ReadOnlyRootFilesystem),
		"capabilities drop ALL":       slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}),
		"no capabilities add":         len(s.Capabilities.Add) == 0,
		"no service account's token":  isFalse(pod.AutomountServiceAccountToken),
		"requests of cpu and memory":  !asked.Cpu().IsZero() && !asked.Memory().IsZero(),
		"limit of memory":             !c.Resources.Limits.Memory().IsZero(),
		"GOMEMLIMIT below the limit":  soft > 0 && soft < c.Resources.Limits.Memory().Value(),
	} {
		if !is {
			t.Errorf("it does not have: %s", what)
		}
	}
}

// The Service sends requests to the pods, and the PodDisruptionBudget keeps all but one of them
// available.
//
// Fails when a selector, a port name or a label is changed in only one place.
func TestServiceAndBudget(t *testing.T) {
	t.Parallel()
	d := decode[apps.Deployment](t, "Deployment", "settle")
	s := decode[core.Service](t, "Service", "settle")
	if !selects(s.Spec.Selector, d) || len(s.Spec.Ports) != 1 ||
		s.Spec.Ports[0].TargetPort.String() != d.Spec.Template.Spec.Containers[0].Ports[0].Name {
		t.Errorf("the Service has %+v", s.Spec)
	}
	b := decode[policy.PodDisruptionBudget](t, "PodDisruptionBudget", "settle")
	if !selects(b.Spec.Selector.MatchLabels, d) || b.Spec.MaxUnavailable == nil ||
		b.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("the PodDisruptionBudget has %+v", b.Spec)
	}
	for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
		if !selects(spread.LabelSelector.MatchLabels, d) {
			t.Errorf("the pods are spread by %+v", spread.LabelSelector)
		}
	}
}

// selects reports whether a selector matches the pods.
func selects(selector map[string]string, d apps.Deployment) bool {
	labels := maps.Clone(d.Spec.Template.Labels)
	maps.Copy(labels, selector)
	return len(selector) > 0 && maps.Equal(labels, d.Spec.Template.Labels)
}

func isTrue(b *bool) bool { return b != nil && *b }

func isFalse(b *bool) bool { return b != nil && !*b }
