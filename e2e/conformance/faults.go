package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"
)

// load is work that goes on while something breaks: a counter that is written without a pause, watches that follow it, a rollout,
// a set whose pods are replaced in order, and a job.
type load struct {
	t        *T
	stop     context.CancelFunc
	done     sync.WaitGroup
	mu       sync.Mutex
	acked    int   // the last value whose write was acknowledged
	observed []int // the values that the watch has told, in order
	informer cache.SharedIndexInformer
	end      context.CancelFunc // of the watches
}

const (
	rolloutPods = 6
	completions = 8
)

func startLoad(t *T) *load {
	l := &load{t: t}
	web, set := deployment("web", rolloutPods), statefulSet("db", 3)
	// So that the rollout takes a few seconds.
	web.Spec.MinReadySeconds, set.Spec.MinReadySeconds = 1, 1
	t.createDeployment(web)
	_, err := t.client.AppsV1().StatefulSets(t.namespace).Create(t.ctx, set, metav1.CreateOptions{})
	t.must(err)
	t.eventually("the deployment runs", t.rolledOut("web", rolloutPods))
	t.eventually("the set runs", t.setIs("db", 3))
	counter := t.configMap("counter", nil)

	watching, end := context.WithCancel(context.Background())
	l.end = end
	t.cleanup(end)
	l.follow(watching, counter.ResourceVersion)
	factory := informers.NewSharedInformerFactoryWithOptions(t.client, 0, informers.WithNamespace(t.namespace))
	l.informer = factory.Core().V1().Pods().Informer()
	factory.Start(watching.Done())
	factory.WaitForCacheSync(watching.Done())

	writing, stop := context.WithCancel(t.ctx)
	l.stop = stop
	t.cleanup(stop)
	l.done.Add(1)
	go l.write(writing)

	newImage := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"e2e/app:2"}]}}}}`)
	_, err = t.client.AppsV1().Deployments(t.namespace).Patch(t.ctx, "web", types.StrategicMergePatchType, newImage, metav1.PatchOptions{})
	t.must(err)
	_, err = t.client.AppsV1().StatefulSets(t.namespace).Patch(t.ctx, "db", types.StrategicMergePatchType, newImage, metav1.PatchOptions{})
	t.must(err)
	indexed := job("work", completions, "sleep", "1")
	indexed.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	_, err = t.client.BatchV1().Jobs(t.namespace).Create(t.ctx, indexed, metav1.CreateOptions{})
	t.must(err)
	t.eventually("the rollout is under way", func() (string, error) {
		d, err := t.client.AppsV1().Deployments(t.namespace).Get(t.ctx, "web", metav1.GetOptions{})
		if err != nil || d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas == 0 {
			return "not yet", err
		}
		if d.Status.UpdatedReplicas == rolloutPods && d.Status.Replicas == rolloutPods {
			t.fail("the rollout is over before anything has happened")
		}
		return "", nil
	})
	return l
}

// follow keeps a watch on the counter, from where the last one ended.
func (l *load) follow(ctx context.Context, version string) {
	source := func(options metav1.ListOptions) (watch.Interface, error) {
		options.FieldSelector = "metadata.name=counter"
		return l.t.client.CoreV1().ConfigMaps(l.t.namespace).Watch(ctx, options)
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{WatchFunc: source})
	l.t.must(err)
	go func() {
		for event := range w.ResultChan() {
			value := -1 // an error is a gap
			if object, ok := event.Object.(*corev1.ConfigMap); ok {
				value, _ = strconv.Atoi(object.Data["value"])
			}
			l.mu.Lock()
			l.observed = append(l.observed, value)
			l.mu.Unlock()
		}
	}()
}

// write counts up; what fails is written again.
func (l *load) write(ctx context.Context) {
	defer l.done.Done()
	for value := 1; ctx.Err() == nil; {
		patch := fmt.Appendf(nil, `{"data":{"value":"%d"}}`, value)
		_, err := l.t.client.CoreV1().ConfigMaps(l.t.namespace).Patch(ctx, "counter", types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			time.Sleep(look / 10)
			continue
		}
		l.mu.Lock()
		l.acked = value
		l.mu.Unlock()
		value++
	}
}

// settles ends the load, and checks that everything came out as if nothing had happened.
func (l *load) settles() {
	t := l.t
	t.eventually("the rollout ends", t.rolledOut("web", rolloutPods))
	t.eventually("the set is updated", t.setIs("db", 3))
	t.eventually("the job completes", func() (string, error) {
		j, err := t.client.BatchV1().Jobs(t.namespace).Get(t.ctx, "work", metav1.GetOptions{})
		if err != nil || !jobHas(j, batchv1.JobComplete) {
			return "not yet", err
		}
		equal(t, "succeeded", j.Status.Succeeded, completions)
		equal(t, "indexes", j.Status.CompletedIndexes, fmt.Sprintf("0-%d", completions-1))
		return "", nil
	})
	t.eventually("no pod is too many", func() (string, error) {
		have := map[string]int{}
		for _, name := range []string{"web", "db"} {
			for _, pod := range t.podsOf(name) {
				have[pod.Spec.Containers[0].Image+" "+name]++
			}
		}
		want := map[string]int{"e2e/app:2 web": rolloutPods, "e2e/app:2 db": 3}
		if maps.Equal(have, want) {
			return "", nil
		}
		return fmt.Sprint(have), nil
	})
	l.stop()
	l.done.Wait()
	l.isComplete()
	t.eventually("the informer knows what there is", func() (string, error) {
		list, err := t.client.CoreV1().Pods(t.namespace).List(t.ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		is, knows := map[string]bool{}, map[string]bool{}
		for _, pod := range list.Items {
			is[pod.Name+" "+pod.ResourceVersion] = true
		}
		for _, object := range l.informer.GetStore().List() {
			pod := object.(*corev1.Pod)
			knows[pod.Name+" "+pod.ResourceVersion] = true
		}
		return differs("pods", sortedKeys(knows), sortedKeys(is)), nil
	})
	l.end()
}

// isComplete: the watch has told every value of the counter once, in order, and no acknowledged write is lost.
func (l *load) isComplete() {
	t := l.t
	counter, err := t.client.CoreV1().ConfigMaps(t.namespace).Get(t.ctx, "counter", metav1.GetOptions{})
	t.must(err)
	last, err := strconv.Atoi(counter.Data["value"])
	t.must(err)
	if last < l.acked {
		t.fail("the counter is %d, but %d was acknowledged", last, l.acked)
	}
	if last < 10 {
		t.fail("the counter is at %d: too little was written to see anything", last)
	}
	t.eventually("the watch tells every write", func() (string, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		want := make([]int, last)
		for i := range want {
			want[i] = i + 1
		}
		if slices.Equal(l.observed, want) {
			return "", nil
		}
		for i := range min(len(want), len(l.observed)) {
			if l.observed[i] != want[i] {
				return fmt.Sprintf("%d after %d, of %d", l.observed[i], i, last), nil
			}
		}
		return fmt.Sprintf("%d values, not %d", len(l.observed), last), nil
	})
}

// setIs is what is missing until a set has that many pods of its newest template.
func (t *T) setIs(name string, replicas int32) func() (string, error) {
	return func() (string, error) {
		set, err := t.client.AppsV1().StatefulSets(t.namespace).Get(t.ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return differs("set "+name, setState(set), fmt.Sprintf("generation %d: %d replicas, %d ready, %d updated", set.Generation, replicas, replicas, replicas)), nil
	}
}

func setState(set *appsv1.StatefulSet) string {
	s := set.Status
	return fmt.Sprintf("generation %d: %d replicas, %d ready, %d updated", s.ObservedGeneration, s.Replicas, s.ReadyReplicas, s.UpdatedReplicas)
}

// serverKilled in the middle of a rollout (SIGKILL), and started again.
func serverKilled(t *T) {
	l := startLoad(t)
	t.plane.KillServer()
	t.must(t.plane.StartServer(t.ctx))
	l.settles()
}

// serverRestarted: it is asked to stop, and started again; clients go on.
func serverRestarted(t *T) {
	l := startLoad(t)
	t.must(t.plane.RestartServer(t.ctx))
	l.settles()
}

// pauseTime is how long a part of the control plane stands still.
const pauseTime = 10 * time.Second

// storePaused: etcd, or the server with the store in it, stands still for ten seconds.
func storePaused(t *T) {
	l := startLoad(t)
	t.must(t.plane.PauseStore())
	t.cleanup(func() { _ = t.plane.ResumeStore() })
	time.Sleep(pauseTime)
	t.must(t.plane.ResumeStore())
	l.settles()
}

// storeKilled: etcd, or the server with the store in it, dies and is away for ten seconds.
func storeKilled(t *T) {
	l := startLoad(t)
	t.plane.KillStore()
	time.Sleep(pauseTime)
	t.must(t.plane.RestartStore(t.ctx))
	l.settles()
}
