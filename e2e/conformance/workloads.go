package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"keelson/e2e/internal/hollow"
)

// deployments: it rolls out, updates, is stuck with a bad image, is rolled back, is scaled, paused and resumed.
func deployments(t *T) {
	api := t.client.AppsV1().Deployments(t.namespace)
	t.createDeployment(deployment("web", 3))
	t.eventually("rolls out", t.rolledOut("web", 3))
	change := func(edit func(*appsv1.Deployment)) {
		t.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
			d, err := api.Get(t.ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			edit(d)
			_, err = api.Update(t.ctx, d, metav1.UpdateOptions{})
			return err
		}))
	}
	image := func(name string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = name }
	}

	change(image("e2e/app:2"))
	t.eventually("updates", t.rolledOut("web", 3))
	equal(t, "revision", t.revision("web"), "2")
	for _, pod := range t.podsOf("web") {
		if pod.DeletionTimestamp == nil {
			equal(t, "image of "+pod.Name, pod.Spec.Containers[0].Image, "e2e/app:2")
		}
	}

	change(image(hollow.MissingImage))
	t.eventually("waits for the bad image", func() (string, error) {
		d, err := api.Get(t.ctx, "web", metav1.GetOptions{})
		if err != nil || d.Status.ObservedGeneration != d.Generation {
			return "not observed", err
		}
		equal(t, "available during a stuck update", d.Status.AvailableReplicas, 3)
		return differs("updated", d.Status.UpdatedReplicas, 1), nil
	})
	change(image("e2e/app:2"))
	t.eventually("is rolled back", t.rolledOut("web", 3))
	equal(t, "revision", t.revision("web"), "4")
	sets, err := t.client.AppsV1().ReplicaSets(t.namespace).List(t.ctx, metav1.ListOptions{})
	t.must(err)
	equal(t, "replica sets", len(sets.Items), 3)

	for _, replicas := range []int32{5, 1} {
		scale, err := api.GetScale(t.ctx, "web", metav1.GetOptions{})
		t.must(err)
		equal(t, "selector of the scale", scale.Status.Selector, "app=web")
		t.scale("web", replicas)
		t.eventually("scales", t.rolledOut("web", replicas))
	}
	change(func(d *appsv1.Deployment) {
		d.Spec.Paused = true
		d.Spec.Template.Annotations = map[string]string{"paused": "yes"}
	})
	t.eventually("is paused", func() (string, error) {
		d, err := api.Get(t.ctx, "web", metav1.GetOptions{})
		if err != nil || d.Status.ObservedGeneration != d.Generation {
			return "not observed", err
		}
		return differs("updated", d.Status.UpdatedReplicas, 0), nil
	})
	change(func(d *appsv1.Deployment) { d.Spec.Paused = false })
	t.eventually("is resumed", t.rolledOut("web", 1))
}

func (t *T) revision(name string) string {
	d, err := t.client.AppsV1().Deployments(t.namespace).Get(t.ctx, name, metav1.GetOptions{})
	t.must(err)
	return d.Annotations["deployment.kubernetes.io/revision"]
}

// recreate: the Recreate strategy never has pods of two templates.
func recreate(t *T) {
	d := deployment("web", 2)
	d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	t.createDeployment(d)
	t.eventually("rolls out", t.rolledOut("web", 2))
	_, err := t.client.AppsV1().Deployments(t.namespace).Patch(t.ctx, "web", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"e2e/app:2"}]}}}}`), metav1.PatchOptions{})
	t.must(err)
	done := t.rolledOut("web", 2)
	t.eventually("updates", func() (string, error) {
		images := map[string]bool{}
		for _, pod := range t.podsOf("web") {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				images[pod.Spec.Containers[0].Image] = true
			}
		}
		if len(images) > 1 {
			t.fail("pods of two templates run: %s", sortedKeys(images))
		}
		return done()
	})
}

// replicaSets adopt matching pods, release those that match no more, and orphan them when they go.
func replicaSets(t *T) {
	orphan := t.createPod(pod("web"))
	sets := t.client.AppsV1().ReplicaSets(t.namespace)
	set, err := sets.Create(t.ctx, &appsv1.ReplicaSet{
		ObjectMeta: named("web"),
		Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](1), Selector: selector("web"), Template: template("web")},
	}, metav1.CreateOptions{})
	t.must(err)
	owner := func(pod *corev1.Pod) types.UID {
		if ref := metav1.GetControllerOf(pod); ref != nil {
			return ref.UID
		}
		return ""
	}
	pods := t.client.CoreV1().Pods(t.namespace)
	t.eventually("adopts", func() (string, error) {
		pod, err := pods.Get(t.ctx, orphan.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return differs("owner", owner(pod), set.UID), nil
	})
	equal(t, "pods", len(t.podsOf("web")), 1)

	_, err = pods.Patch(t.ctx, "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{})
	t.must(err)
	t.eventually("releases and replaces", func() (string, error) {
		pod, err := pods.Get(t.ctx, orphan.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if lack := differs("owner", owner(pod), ""); lack != "" {
			return lack, nil
		}
		return differs("pods", len(t.podsOf("web")), 1), nil
	})

	t.must(sets.Delete(t.ctx, "web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}))
	t.eventually("orphans", func() (string, error) {
		list, err := sets.List(t.ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) > 0 {
			return "still there", err
		}
		rest := t.podsOf("web")
		equal(t, "pods", len(rest), 1)
		return differs("owner", owner(&rest[0]), ""), nil
	})
}

// replicationControllers keep the number of their pods, and say why they cannot.
func replicationControllers(t *T) {
	_, err := t.client.CoreV1().ReplicationControllers(t.namespace).Create(t.ctx, &corev1.ReplicationController{
		ObjectMeta: named("web"),
		Spec:       corev1.ReplicationControllerSpec{Replicas: ptr.To[int32](2), Template: ptr.To(template("web"))},
	}, metav1.CreateOptions{})
	t.must(err)
	ready := func() (string, error) {
		rc, err := t.client.CoreV1().ReplicationControllers(t.namespace).Get(t.ctx, "web", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return differs("ready", rc.Status.ReadyReplicas, 2), nil
	}
	t.eventually("runs", ready)
	first := t.podsOf("web")[0]
	t.must(t.client.CoreV1().Pods(t.namespace).Delete(t.ctx, first.Name, metav1.DeleteOptions{}))
	t.eventually("replaces", func() (string, error) {
		for _, pod := range t.podsOf("web") {
			if pod.UID == first.UID {
				return first.Name + " is still there", nil
			}
		}
		return ready()
	})
}

// jobs complete, with as many pods at once as they may have; indexed ones have a pod for each index.
func jobs(t *T) {
	api := t.client.BatchV1().Jobs(t.namespace)
	indexed := job("indexed", 3, "true")
	indexed.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	for _, one := range []*batchv1.Job{job("plain", 4, "sleep", "0.5"), indexed} {
		_, err := api.Create(t.ctx, one, metav1.CreateOptions{})
		t.must(err)
	}
	for name, completions := range map[string]int32{"plain": 4, "indexed": 3} {
		t.eventually(name+" completes", func() (string, error) {
			j, err := api.Get(t.ctx, name, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			if j.Status.Active > 2 {
				t.fail("%s has %d pods at once", name, j.Status.Active)
			}
			if !jobHas(j, batchv1.JobComplete) {
				return fmt.Sprintf("%d of %d, conditions %v", j.Status.Succeeded, completions, j.Status.Conditions), nil
			}
			equal(t, "succeeded", j.Status.Succeeded, completions)
			return "", nil
		})
		list, err := t.client.CoreV1().Pods(t.namespace).List(t.ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + name})
		t.must(err)
		equal(t, "pods of "+name, len(list.Items), int(completions))
	}
	j, err := api.Get(t.ctx, "indexed", metav1.GetOptions{})
	t.must(err)
	equal(t, "completed indexes", j.Status.CompletedIndexes, "0-2")
}

func jobHas(j *batchv1.Job, kind batchv1.JobConditionType) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(one batchv1.JobCondition) bool {
		return one.Type == kind && one.Status == corev1.ConditionTrue
	})
}

// jobsThatFail stop at their limit of failures, and go when their time to live is over.
func jobsThatFail(t *T) {
	api := t.client.BatchV1().Jobs(t.namespace)
	bad := job("bad", 1, "false")
	bad.Spec.BackoffLimit = ptr.To[int32](0)
	fleeting := job("fleeting", 1, "true")
	fleeting.Spec.TTLSecondsAfterFinished = ptr.To[int32](1)
	for _, one := range []*batchv1.Job{bad, fleeting} {
		_, err := api.Create(t.ctx, one, metav1.CreateOptions{})
		t.must(err)
	}
	t.eventually("bad fails", func() (string, error) {
		j, err := api.Get(t.ctx, "bad", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if !jobHas(j, batchv1.JobFailed) {
			return fmt.Sprintf("conditions %v", j.Status.Conditions), nil
		}
		return differs("failed", j.Status.Failed, 1), nil
	})
	t.eventually("fleeting goes, with its pods", func() (string, error) {
		list, err := t.client.CoreV1().Pods(t.namespace).List(t.ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=fleeting"})
		if err != nil {
			return "", err
		}
		jobs, err := api.List(t.ctx, metav1.ListOptions{FieldSelector: "metadata.name=fleeting"})
		if err != nil {
			return "", err
		}
		return differs("jobs and pods", len(jobs.Items)+len(list.Items), 0), nil
	})
}

// cronJobs fire at the next full minute.
func cronJobs(t *T) {
	template := job("x", 1, "true").Spec
	template.Completions, template.Parallelism = nil, nil
	_, err := t.client.BatchV1().CronJobs(t.namespace).Create(t.ctx, &batchv1.CronJob{
		ObjectMeta: named("tick"),
		Spec:       batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: template}},
	}, metav1.CreateOptions{})
	t.must(err)
	t.within(90*time.Second, "fires", func() (string, error) {
		list, err := t.client.BatchV1().Jobs(t.namespace).List(t.ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return "no job", err
		}
		if !jobHas(&list.Items[0], batchv1.JobComplete) {
			return "not complete", nil
		}
		cron, err := t.client.BatchV1().CronJobs(t.namespace).Get(t.ctx, "tick", metav1.GetOptions{})
		if err != nil || cron.Status.LastScheduleTime == nil {
			return "no last schedule time", err
		}
		equal(t, "owner of the job", metav1.GetControllerOf(&list.Items[0]).UID, cron.UID)
		return "", nil
	})
}

// statefulSets make their pods in order, each with its claim, and take them away in the reverse order.
func statefulSets(t *T) {
	class := t.namespace
	for i := range 3 {
		_, err := t.client.CoreV1().PersistentVolumes().Create(t.ctx, &corev1.PersistentVolume{
			ObjectMeta: named(fmt.Sprintf("%s-%d", t.namespace, i)),
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName:       class,
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
			},
		}, metav1.CreateOptions{})
		t.must(err)
	}
	set := statefulSet("db", 3)
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
		ObjectMeta: named("data"),
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}}
	api := t.client.AppsV1().StatefulSets(t.namespace)
	_, err := api.Create(t.ctx, set, metav1.CreateOptions{})
	t.must(err)
	t.eventually("runs", t.setIs("db", 3))
	pods := t.podsOf("db")
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for i, pod := range pods {
		equal(t, "name", pod.Name, fmt.Sprintf("db-%d", i))
		equal(t, "index label", pod.Labels["apps.kubernetes.io/pod-index"], fmt.Sprint(i))
		equal(t, "claim", pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, "data-"+pod.Name)
		if i > 0 && pod.CreationTimestamp.Before(pods[i-1].Status.StartTime) {
			t.fail("%s was made before %s ran", pod.Name, pods[i-1].Name)
		}
	}

	_, err = api.Patch(t.ctx, "db", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"e2e/app:2"}]}}}}`), metav1.PatchOptions{})
	t.must(err)
	t.eventually("updates", t.setIs("db", 3))
	for _, pod := range t.podsOf("db") {
		equal(t, "image of "+pod.Name, pod.Spec.Containers[0].Image, "e2e/app:2")
	}

	_, err = api.UpdateScale(t.ctx, "db", &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: t.namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 1},
	}, metav1.UpdateOptions{})
	t.must(err)
	t.eventually("scales down from the end", func() (string, error) {
		left := map[string]bool{}
		for _, pod := range t.podsOf("db") {
			left[pod.Name] = true
		}
		if left["db-2"] && !left["db-1"] {
			t.fail("db-1 went before db-2")
		}
		return differs("pods", sortedKeys(left), "db-0"), nil
	})
	claimsAreProtected(t)
}

// claimsAreProtected: those of a scaled down set stay; one in use stays until its pod is gone.
func claimsAreProtected(t *T) {
	api := t.client.CoreV1().PersistentVolumeClaims(t.namespace)
	claims, err := api.List(t.ctx, metav1.ListOptions{})
	t.must(err)
	equal(t, "claims", len(claims.Items), 3)
	for _, claim := range claims.Items {
		equal(t, "phase of "+claim.Name, claim.Status.Phase, corev1.ClaimBound)
	}
	t.must(api.Delete(t.ctx, "data-db-0", metav1.DeleteOptions{}))
	t.must(api.Delete(t.ctx, "data-db-1", metav1.DeleteOptions{}))
	names := func() string {
		claims, err := api.List(t.ctx, metav1.ListOptions{})
		t.must(err)
		all := map[string]bool{}
		for _, claim := range claims.Items {
			all[claim.Name] = true
		}
		return sortedKeys(all)
	}
	t.eventually("the unused claim goes", func() (string, error) { return differs("claims", names(), "data-db-0 data-db-2"), nil })
	t.must(t.client.AppsV1().StatefulSets(t.namespace).Delete(t.ctx, "db", metav1.DeleteOptions{}))
	t.eventually("the used claim goes after its pod", func() (string, error) {
		pods := len(t.podsOf("db")) // before the claims, or both could go in between
		if have := names(); pods > 0 && !strings.Contains(have, "data-db-0") && len(t.podsOf("db")) > 0 {
			t.fail("data-db-0 went before its pod")
		}
		return differs("claims", names(), "data-db-2"), nil
	})
	for i := range 3 {
		name := fmt.Sprintf("%s-%d", t.namespace, i)
		t.undo(func(ctx context.Context) {
			_ = t.client.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{})
		})
	}
}

// daemonSets run one pod on every node that matches, and on each that joins.
func daemonSets(t *T) {
	nodes := t.pool(2)
	set := &appsv1.DaemonSet{ObjectMeta: named("agent"), Spec: appsv1.DaemonSetSpec{Selector: selector("agent"), Template: template("agent")}}
	t.inPool(&set.Spec.Template.Spec)
	api := t.client.AppsV1().DaemonSets(t.namespace)
	_, err := api.Create(t.ctx, set, metav1.CreateOptions{})
	t.must(err)
	covers := func(nodes []string) func() (string, error) {
		return func() (string, error) {
			on := map[string]int{}
			for _, pod := range t.podsOf("agent") {
				if isReady(&pod) && pod.DeletionTimestamp == nil {
					on[pod.Spec.NodeName]++
				}
			}
			want := map[string]int{}
			for _, name := range nodes {
				want[name] = 1
			}
			if !maps.Equal(on, want) {
				return fmt.Sprintf("pods on %v", on), nil
			}
			set, err := api.Get(t.ctx, "agent", metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			return differs("ready", set.Status.NumberReady, int32(len(nodes))), nil
		}
	}
	t.eventually("runs on every node", covers(nodes))
	nodes = append(nodes, t.pool(1)...)
	t.eventually("runs on the node that joined", covers(nodes))
	_, err = api.Patch(t.ctx, "agent", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"e2e/app:2"}]}}}}`), metav1.PatchOptions{})
	t.must(err)
	t.eventually("updates", func() (string, error) {
		set, err := api.Get(t.ctx, "agent", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		have := fmt.Sprintf("%d, generation %d", set.Status.UpdatedNumberScheduled, set.Status.ObservedGeneration)
		if lack := differs("updated", have, fmt.Sprintf("%d, generation %d", len(nodes), set.Generation)); lack != "" {
			return lack, nil
		}
		return covers(nodes)()
	})
	revisions, err := t.client.AppsV1().ControllerRevisions(t.namespace).List(t.ctx, metav1.ListOptions{})
	t.must(err)
	equal(t, "revisions", len(revisions.Items), 2)
}
