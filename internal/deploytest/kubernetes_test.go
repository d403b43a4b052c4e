package deploytest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const manifest = "deploy/kubernetes/settle.yaml"

// decode reads the object of a kind from the manifest. A field that it does not have is an error.
func decode[T any](t *testing.T, kind string) (object T) {
	t.Helper()
	found := 0
	for doc := range strings.SplitSeq(read(t, manifest), "\n---\n") {
		if strings.Contains(doc, "\nkind: "+kind+"\n") {
			found++
			if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
	if found != 1 {
		t.Fatalf("%s has %d objects of kind %s, want one", manifest, found, kind)
	}
	return object
}

// The Deployment asks for what the program has: its probes, its port, as much time to end as it may
// take, and its secret from the environment.
//
// Fails when a field is misspelt, a probe is renamed, a port is another one, or DrainTimeout or
// -prestop outgrow the grace period.
func TestDeployment(t *testing.T) {
	t.Parallel()
	d := decode[apps.Deployment](t, "Deployment")
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
	if len(c.Ports) != 1 || port(t, c.Args) != fmt.Sprint(c.Ports[0].ContainerPort) {
		t.Errorf("the program serves at %s, its container at %+v", port(t, c.Args), c.Ports)
	}
	for i, p := range []*core.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != probes[i] || p.HTTPGet.Port.String() != c.Ports[0].Name {
			t.Errorf("the probe is %+v, want one of %s", p, probes[i])
		}
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		t.Error("the program waits by itself: it needs no preStop hook")
	}
	for _, e := range c.Env {
		if e.Value != "" || e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
			t.Errorf("%s is no secret", e.Name)
		}
		if !strings.Contains(read(t, "examples/kubernetes/main.go"), `os.Getenv("`+e.Name+`")`) {
			t.Errorf("the program does not know %s", e.Name)
		}
	}
}

// The pod may do nothing that the program does not need: what Kubernetes calls "restricted".
//
// Fails when one of its rights is given back, or a resource is not asked for.
func TestPodIsRestricted(t *testing.T) {
	t.Parallel()
	pod := decode[apps.Deployment](t, "Deployment").Spec.Template.Spec
	c := pod.Containers[0]
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
	} {
		if !is {
			t.Errorf("it does not have: %s", what)
		}
	}
}

// The Service sends requests to the pods, and the PodDisruptionBudget keeps all but one of them.
//
// Fails when a selector, a port's name or a label is changed in one place only.
func TestServiceAndBudget(t *testing.T) {
	t.Parallel()
	d := decode[apps.Deployment](t, "Deployment")
	s := decode[core.Service](t, "Service")
	if !selects(s.Spec.Selector, d) || len(s.Spec.Ports) != 1 ||
		s.Spec.Ports[0].TargetPort.String() != d.Spec.Template.Spec.Containers[0].Ports[0].Name {
		t.Errorf("the Service has %+v", s.Spec)
	}
	b := decode[policy.PodDisruptionBudget](t, "PodDisruptionBudget")
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

// selects reports whether a selector finds the pods.
func selects(selector map[string]string, d apps.Deployment) bool {
	labels := maps.Clone(d.Spec.Template.Labels)
	maps.Copy(labels, selector)
	return len(selector) > 0 && maps.Equal(labels, d.Spec.Template.Labels)
}

func isTrue(b *bool) bool { return b != nil && *b }

func isFalse(b *bool) bool { return b != nil && !*b }
