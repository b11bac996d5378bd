package conformance

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// configMap makes one, with owners.
func (t *T) configMap(name string, finalizers []string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	made, err := t.client.CoreV1().ConfigMaps(t.namespace).Create(t.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers, OwnerReferences: owners},
	}, metav1.CreateOptions{})
	t.must(err)
	return made
}

func ownedBy(object metav1.Object, apiVersion, kind string) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: apiVersion, Kind: kind, Name: object.GetName(), UID: object.GetUID(), BlockOwnerDeletion: ptr.To(true),
	}
}

func (t *T) configMapGone(name string) func() (string, error) {
	return func() (string, error) {
		_, err := t.client.CoreV1().ConfigMaps(t.namespace).Get(t.ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return name + " is still there", err
	}
}

func (t *T) deleteConfigMap(name string, policy metav1.DeletionPropagation) {
	t.must(t.client.CoreV1().ConfigMaps(t.namespace).Delete(t.ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}))
}

// background: the owner goes at once, what it owned follows, whatever its kind.
func background(t *T) {
	owner := t.configMap("owner", nil)
	t.configMap("dependent", nil, ownedBy(owner, "v1", "ConfigMap"))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "dependent", OwnerReferences: []metav1.OwnerReference{ownedBy(owner, "v1", "ConfigMap")}}}
	_, err := t.client.CoreV1().Secrets(t.namespace).Create(t.ctx, secret, metav1.CreateOptions{})
	t.must(err)
	other := t.configMap("other", nil)
	t.configMap("shared", nil, ownedBy(owner, "v1", "ConfigMap"), ownedBy(other, "v1", "ConfigMap"))
	t.deleteConfigMap("owner", metav1.DeletePropagationBackground)
	t.eventually("the owner goes", t.configMapGone("owner"))
	t.eventually("the dependent goes", t.configMapGone("dependent"))
	t.eventually("the dependent of another kind goes", func() (string, error) {
		_, err := t.client.CoreV1().Secrets(t.namespace).Get(t.ctx, "dependent", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "still there", err
	})
	t.eventually("one with another owner stays, and is owned by that alone", func() (string, error) {
		shared, err := t.client.CoreV1().ConfigMaps(t.namespace).Get(t.ctx, "shared", metav1.GetOptions{})
		t.must(err)
		return differs("owners", len(shared.OwnerReferences), 1), nil
	})
}

// foreground: the owner waits until what it owns, and blocks it, is gone.
func foreground(t *T) {
	owner := t.configMap("owner", nil)
	t.configMap("dependent", []string{"e2e.keelson/hold"}, ownedBy(owner, "v1", "ConfigMap"))
	t.deleteConfigMap("owner", metav1.DeletePropagationForeground)
	api := t.client.CoreV1().ConfigMaps(t.namespace)
	t.eventually("the dependent is deleted", func() (string, error) {
		dependent, err := api.Get(t.ctx, "dependent", metav1.GetOptions{})
		if err != nil || dependent.DeletionTimestamp == nil {
			return "not yet", err
		}
		return "", nil
	})
	waiting, err := api.Get(t.ctx, "owner", metav1.GetOptions{})
	t.must(err)
	equal(t, "finalizers of the owner", fmt.Sprint(waiting.Finalizers), "[foregroundDeletion]")
	_, err = api.Patch(t.ctx, "dependent", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	t.must(err)
	t.eventually("the dependent goes", t.configMapGone("dependent"))
	t.eventually("the owner goes", t.configMapGone("owner"))

	t.createDeployment(deployment("web", 2))
	t.eventually("a deployment runs", t.rolledOut("web", 2))
	policy := metav1.DeletePropagationForeground
	t.must(t.client.AppsV1().Deployments(t.namespace).Delete(t.ctx, "web", metav1.DeleteOptions{PropagationPolicy: &policy}))
	t.eventually("a deployment goes after its pods", func() (string, error) {
		_, err := t.client.AppsV1().Deployments(t.namespace).Get(t.ctx, "web", metav1.GetOptions{})
		if err == nil {
			return "still there", nil
		}
		if !apierrors.IsNotFound(err) {
			return "", err
		}
		equal(t, "pods that it left behind", len(t.podsOf("web")), 0)
		return "", nil
	})
}

// orphan: what the owner owned stays, and is owned no more.
func orphan(t *T) {
	owner := t.configMap("owner", nil)
	t.configMap("dependent", nil, ownedBy(owner, "v1", "ConfigMap"))
	t.deleteConfigMap("owner", metav1.DeletePropagationOrphan)
	t.eventually("the owner goes", t.configMapGone("owner"))
	dependent, err := t.client.CoreV1().ConfigMaps(t.namespace).Get(t.ctx, "dependent", metav1.GetOptions{})
	t.must(err)
	equal(t, "owners", len(dependent.OwnerReferences), 0)
}

// crossKinds: owners of the cluster own objects of namespaces; owners that never were let go; circles go as a whole.
func crossKinds(t *T) {
	name := t.namespace
	role, err := t.client.RbacV1().ClusterRoles().Create(t.ctx, &rbacv1.ClusterRole{ObjectMeta: named(name)}, metav1.CreateOptions{})
	t.must(err)
	t.configMap("of-role", nil, ownedBy(role, rbacv1.SchemeGroupVersion.String(), "ClusterRole"))
	ghost := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ghost", UID: "00000000-0000-0000-0000-000000000000"}}
	t.configMap("of-ghost", nil, ownedBy(ghost, "v1", "ConfigMap"))
	t.eventually("the dependent of nobody goes", t.configMapGone("of-ghost"))

	a := t.configMap("a", nil)
	b := t.configMap("b", nil, ownedBy(a, "v1", "ConfigMap"))
	a.OwnerReferences = []metav1.OwnerReference{ownedBy(b, "v1", "ConfigMap")}
	_, err = t.client.CoreV1().ConfigMaps(t.namespace).Update(t.ctx, a, metav1.UpdateOptions{})
	t.must(err)
	t.deleteConfigMap("a", metav1.DeletePropagationForeground)
	t.eventually("a circle goes", t.configMapGone("b"))
	t.eventually("all of it", t.configMapGone("a"))

	t.must(t.client.RbacV1().ClusterRoles().Delete(t.ctx, name, metav1.DeleteOptions{}))
	t.eventually("the dependent of the cluster's owner goes", t.configMapGone("of-role"))
}
