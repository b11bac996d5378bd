package chart

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// What the server makes itself is the same in every rendering, since no rendering has it.
func TestKeysOfTheServer(t *testing.T) {
	out := must(t, `{certs: {by: server}}`)
	if out.secret != nil {
		t.Errorf("there is a secret %s", out.secret.Name)
	}
	pod := out.set.Spec.Template.Spec
	for _, argument := range pod.Containers[0].Args {
		if strings.Contains(argument, "/certs/") {
			t.Errorf("the server is told of %s", argument)
		}
	}
	if !slices.Contains(pod.Containers[0].Args, "--external-hostname=dev-keelson.team.svc") {
		t.Errorf("its certificate is not for the service: %q", pod.Containers[0].Args)
	}
	for _, volume := range pod.Volumes {
		if volume.Secret != nil {
			t.Errorf("the pod waits for the secret %s", volume.Secret.SecretName)
		}
	}
	if !strings.Contains(out.notes, "exec dev-keelson-0 -- keelson kubeconfig --data-dir=/data --server=https://dev-keelson.team.svc:443") {
		t.Errorf("the notes do not say how to come by a kubeconfig:\n%s", out.notes)
	}
	for values, want := range map[string]string{
		`{certs: {by: server}, etcd: {servers: ["https://a:2379"]}}`:        "with etcd, servers share certsSecret",
		`{certs: {by: server}, metrics: {serviceMonitor: {enabled: true}}}`: "metrics.serviceMonitor needs the token",
		`{certs: {by: me}}`: "certs.by is helm or server",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v", values, err)
		}
	}
}

// The pod of `helm test` is no part of the release's workload, sees no secret but the authority that every client has, and asks the
// server for what its readiness is by the name that the certificate and the kubeconfig have.
func TestOfTheChart(t *testing.T) {
	for values, trust := range map[string][]string{``: {"--cacert", "/certs/ca.crt"}, `{certs: {by: server}}`: {"--insecure"}} {
		out := must(t, values)
		pod := out.test
		if pod == nil || pod.Annotations["helm.sh/hook"] != "test" || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
			t.Fatalf("%q: %+v", values, pod)
		}
		selected := true
		for key, value := range out.service.Spec.Selector {
			selected = selected && pod.Labels[key] == value
		}
		if selected {
			t.Errorf("%q: the Service leads to the test", values)
		}
		arguments := pod.Spec.Containers[0].Args
		url := "https://dev-keelson.team.svc:443/readyz?verbose"
		if arguments[len(arguments)-1] != url || !strings.Contains(strings.Join(arguments, " "), strings.Join(trust, " ")+" "+url) {
			t.Errorf("%q: %q", values, arguments)
		}
		for _, volume := range pod.Spec.Volumes {
			if len(volume.Secret.Items) != 1 || volume.Secret.Items[0].Key != "ca.crt" || volume.Secret.SecretName != out.secret.Name {
				t.Errorf("%q: %+v", values, volume.Secret)
			}
		}
		if len(pod.Spec.Volumes) != len(trust)-1 {
			t.Errorf("%q: %d volumes", values, len(pod.Spec.Volumes))
		}
		if !*pod.Spec.SecurityContext.RunAsNonRoot || *pod.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation {
			t.Errorf("%q: %+v", values, pod.Spec.SecurityContext)
		}
	}
}

func TestFilesForFlags(t *testing.T) {
	out := must(t, `{
		extraArgs: ["--encryption-provider-config=/encryption/config.yaml"],
		extraEnv: [{name: SSL_CERT_DIR, value: /ca}],
		extraVolumes: [{name: encryption, secret: {secretName: encryption}}],
		extraVolumeMounts: [{name: encryption, mountPath: /encryption, readOnly: true}],
		priorityClassName: system-cluster-critical}`)
	pod := out.set.Spec.Template.Spec
	mounted := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(mount corev1.VolumeMount) bool {
		return mount.Name == "encryption" && mount.MountPath == "/encryption"
	})
	held := slices.ContainsFunc(pod.Volumes, func(volume corev1.Volume) bool {
		return volume.Name == "encryption" && volume.Secret.SecretName == "encryption"
	})
	if !mounted || !held || pod.Containers[0].Env[0].Name != "SSL_CERT_DIR" || pod.PriorityClassName != "system-cluster-critical" {
		t.Errorf("%+v", pod)
	}
}

func TestReplicasAreSpreadAndKept(t *testing.T) {
	out := must(t, `{replicas: 3, etcd: {servers: ["https://a:2379"]}}`)
	spread := out.set.Spec.Template.Spec.TopologySpreadConstraints
	if len(spread) != 2 || spread[0].TopologyKey != "kubernetes.io/hostname" || spread[0].WhenUnsatisfiable != corev1.ScheduleAnyway {
		t.Errorf("%+v", spread)
	}
	if out.budget == nil || out.budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Fatalf("%+v", out.budget)
	}
	for key, value := range out.budget.Spec.Selector.MatchLabels {
		if out.set.Spec.Template.Labels[key] != value {
			t.Errorf("the budget selects %s=%s", key, value)
		}
	}
	if one := must(t, ""); one.budget != nil {
		t.Error("a budget would keep the node of a single server from ever being drained")
	}
}

// OpenShift gives pods a user of its own choice, and refuses others.
func TestOpenShift(t *testing.T) {
	out := must(t, `{podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}}`)
	context := out.set.Spec.Template.Spec.SecurityContext
	if context.RunAsUser != nil || context.RunAsGroup != nil || context.FSGroup != nil {
		t.Errorf("%+v", context)
	}
	if !*context.RunAsNonRoot || context.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%+v", context)
	}
}
