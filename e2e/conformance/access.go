package conformance

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson/e2e/controlplane"
)

// serviceAccounts: every namespace has the default one and the cluster's CA, pods get both and a token; a deleted one comes back.
func serviceAccounts(t *T) {
	accounts := t.client.CoreV1().ServiceAccounts(t.namespace)
	before, err := accounts.Get(t.ctx, "default", metav1.GetOptions{})
	t.must(err)
	t.must(accounts.Delete(t.ctx, "default", metav1.DeleteOptions{}))
	t.eventually("the default account comes back", func() (string, error) {
		after, err := accounts.Get(t.ctx, "default", metav1.GetOptions{})
		if err == nil && after.UID == before.UID {
			return "the old one", nil
		}
		return "", err
	})
	maps := t.client.CoreV1().ConfigMaps(t.namespace)
	ca := func() (string, error) {
		one, err := maps.Get(t.ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return differs("CA", one.Data["ca.crt"], t.plane.CA()), nil
	}
	t.eventually("the CA is there", ca)
	t.must(maps.Delete(t.ctx, "kube-root-ca.crt", metav1.DeleteOptions{}))
	t.eventually("the CA comes back", ca)

	made := t.createPod(pod("web"))
	equal(t, "service account", made.Spec.ServiceAccountName, "default")
	equal(t, "mount", made.Spec.Containers[0].VolumeMounts[0].MountPath, "/var/run/secrets/kubernetes.io/serviceaccount")
	// A hollow node runs a pod only once it has had the token and the CA of its volume.
	t.eventually("runs", t.podIs("web", corev1.PodRunning))
}

// as is a client with a token.
func (t *T) as(token string) kubernetes.Interface {
	config := rest.AnonymousClientConfig(t.config)
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	t.must(err)
	return client
}

// tokens are bound to an audience, and to an object as long as it lives.
func tokens(t *T) {
	bound := t.createPod(pod("web"))
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: bound.Name, UID: bound.UID},
	}}
	answer, err := t.client.CoreV1().ServiceAccounts(t.namespace).CreateToken(t.ctx, "default", request, metav1.CreateOptions{})
	t.must(err)
	robot := t.as(answer.Status.Token)
	self, err := robot.AuthenticationV1().SelfSubjectReviews().Create(t.ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	t.must(err)
	equal(t, "user", self.Status.UserInfo.Username, "system:serviceaccount:"+t.namespace+":default")
	equal(t, "pod", fmt.Sprint(self.Status.UserInfo.Extra["authentication.kubernetes.io/pod-name"]), "[web]")

	_, err = robot.CoreV1().Pods(t.namespace).List(t.ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.fail("without a role: %v", err)
	}
	_, err = t.client.RbacV1().RoleBindings(t.namespace).Create(t.ctx, &rbacv1.RoleBinding{
		ObjectMeta: named("view"),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "default", Namespace: t.namespace}},
	}, metav1.CreateOptions{})
	t.must(err)
	t.eventually("with the role it may", func() (string, error) {
		_, err := robot.CoreV1().Pods(t.namespace).List(t.ctx, metav1.ListOptions{})
		return "", err
	})
	access, err := robot.AuthorizationV1().SelfSubjectAccessReviews().Create(t.ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: t.namespace, Verb: "delete", Resource: "pods"}},
	}, metav1.CreateOptions{})
	t.must(err)
	equal(t, "may delete", access.Status.Allowed, false)

	review := func(token, audience string) authenticationv1.TokenReviewStatus {
		answer, err := t.client.AuthenticationV1().TokenReviews().Create(t.ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
		}, metav1.CreateOptions{})
		t.must(err)
		return answer.Status
	}
	request.Spec.Audiences, request.Spec.BoundObjectRef = []string{"vault"}, nil
	other, err := t.client.CoreV1().ServiceAccounts(t.namespace).CreateToken(t.ctx, "default", request, metav1.CreateOptions{})
	t.must(err)
	equal(t, "for its audience", review(other.Status.Token, "vault").Authenticated, true)
	equal(t, "for another", review(other.Status.Token, "shop").Authenticated, false)
	_, err = t.as(other.Status.Token).CoreV1().Pods(t.namespace).List(t.ctx, metav1.ListOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.fail("a token for another audience: %v", err)
	}

	t.must(t.client.CoreV1().Pods(t.namespace).Delete(t.ctx, bound.Name, *metav1.NewDeleteOptions(0)))
	t.eventually("the token dies with its pod", func() (string, error) {
		_, err := robot.CoreV1().Pods(t.namespace).List(t.ctx, metav1.ListOptions{})
		if apierrors.IsUnauthorized(err) {
			return "", nil
		}
		return "it works still", err
	})
}

// legacyTokens: a secret of the token type is filled by the controller, and goes with its account.
func legacyTokens(t *T) {
	_, err := t.client.CoreV1().ServiceAccounts(t.namespace).Create(t.ctx, &corev1.ServiceAccount{ObjectMeta: named("robot")}, metav1.CreateOptions{})
	t.must(err)
	api := t.client.CoreV1().Secrets(t.namespace)
	_, err = api.Create(t.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "robot", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	t.must(err)
	var token string
	t.eventually("is filled", func() (string, error) {
		secret, err := api.Get(t.ctx, "robot", metav1.GetOptions{})
		if err != nil || len(secret.Data["token"]) == 0 {
			return "no token", err
		}
		token = string(secret.Data["token"])
		return "", nil
	})
	self, err := t.as(token).AuthenticationV1().SelfSubjectReviews().Create(t.ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	t.must(err)
	equal(t, "user", self.Status.UserInfo.Username, "system:serviceaccount:"+t.namespace+":robot")
	t.must(t.client.CoreV1().ServiceAccounts(t.namespace).Delete(t.ctx, "robot", metav1.DeleteOptions{}))
	t.eventually("goes with its account", func() (string, error) {
		_, err := api.Get(t.ctx, "robot", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "still there", err
	})
}

// aggregatedRoles: the rules of a cluster role that is made of others follow them.
func aggregatedRoles(t *T) {
	name, label := t.namespace, map[string]string{"e2e.keelson/aggregate": "yes"}
	api := t.client.RbacV1().ClusterRoles()
	part := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-part", Labels: label},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
	}
	whole := &rbacv1.ClusterRole{
		ObjectMeta:      named(name),
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: label}}},
	}
	for _, role := range []*rbacv1.ClusterRole{part, whole} {
		_, err := api.Create(t.ctx, role, metav1.CreateOptions{})
		t.must(err)
		t.undo(func(ctx context.Context) { _ = api.Delete(ctx, role.Name, metav1.DeleteOptions{}) })
	}
	t.eventually("has the rules of its part", func() (string, error) {
		role, err := api.Get(t.ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return differs("rules", fmt.Sprint(role.Rules), fmt.Sprint(part.Rules)), nil
	})
}

// request makes a key and asks for a certificate.
func (t *T) request(client kubernetes.Interface, name, signer string, subject pkix.Name) (*ecdsa.PrivateKey, *certificatesv1.CertificateSigningRequest) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	t.must(err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	t.must(err)
	made, err := client.CertificatesV1().CertificateSigningRequests().Create(t.ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: named(name),
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: signer,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	t.must(err)
	return key, made
}

// signed waits for the certificate, and makes a client of it.
func (t *T) signed(name string, key *ecdsa.PrivateKey) *rest.Config {
	config := rest.AnonymousClientConfig(t.config)
	t.eventually("is signed", func() (string, error) {
		one, err := t.client.CertificatesV1().CertificateSigningRequests().Get(t.ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if len(one.Status.Certificate) == 0 {
			return fmt.Sprintf("conditions %v", one.Status.Conditions), nil
		}
		config.CertData = one.Status.Certificate
		return "", nil
	})
	der, err := x509.MarshalECPrivateKey(key)
	t.must(err)
	config.KeyData = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return config
}

// certificates: a request that is approved is signed, and its certificate works; one that is denied is not.
func certificates(t *T) {
	name, signer := t.namespace, certificatesv1.KubeAPIServerClientSignerName
	key, made := t.request(t.client, name, signer, pkix.Name{CommonName: "jane", Organization: []string{"devs"}})
	equal(t, "requester", made.Spec.Username, "kubernetes-admin")
	decide := func(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) {
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: "e2e", Message: "decided by a check",
		})
		_, err := t.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.ctx, csr.Name, csr, metav1.UpdateOptions{})
		t.must(err)
	}
	decide(made, certificatesv1.CertificateApproved)
	jane, err := kubernetes.NewForConfig(t.signed(name, key))
	t.must(err)
	self, err := jane.AuthenticationV1().SelfSubjectReviews().Create(t.ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	t.must(err)
	equal(t, "user", self.Status.UserInfo.Username, "jane")
	equal(t, "in its group", slices.Contains(self.Status.UserInfo.Groups, "devs"), true)

	_, no := t.request(t.client, name+"-no", signer, pkix.Name{CommonName: "mallory"})
	decide(no, certificatesv1.CertificateDenied)
	no, err = t.client.CertificatesV1().CertificateSigningRequests().Get(t.ctx, no.Name, metav1.GetOptions{})
	t.must(err)
	equal(t, "certificate of the denied", len(no.Status.Certificate), 0)
}

// joining: a node that has but a bootstrap token gets a certificate without anybody's help, and runs pods.
func joining(t *T) {
	const id, secret, node = "e2ekee", "0123456789abcdef", "joined"
	_, err := t.client.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.ctx, &corev1.Secret{
		ObjectMeta: named("bootstrap-token-" + id),
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
			"auth-extra-groups": controlplane.Joiners,
		},
	}, metav1.CreateOptions{})
	t.must(err)
	key, made := t.request(t.as(id+"."+secret), "node-csr-"+node, certificatesv1.KubeAPIServerClientKubeletSignerName,
		pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}})
	equal(t, "requester", made.Spec.Username, "system:bootstrap:"+id)
	_, err = t.plane.Join(t.signed("node-csr-"+node, key), node)
	t.must(err)
	t.eventually("is ready", func() (string, error) { return t.nodeLacks(node, corev1.ConditionTrue) })
	one := pod("web")
	one.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	t.createPod(one)
	t.eventually("runs a pod", t.podIs("web", corev1.PodRunning))

	_, err = t.client.CoreV1().ConfigMaps(metav1.NamespacePublic).Create(t.ctx, &corev1.ConfigMap{
		ObjectMeta: named("cluster-info"), Data: map[string]string{"kubeconfig": "apiVersion: v1\nkind: Config\n"},
	}, metav1.CreateOptions{})
	t.must(err)
	t.eventually("cluster-info is signed with the token", func() (string, error) {
		info, err := t.client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(t.ctx, "cluster-info", metav1.GetOptions{})
		if err != nil || !strings.Contains(info.Data["jws-kubeconfig-"+id], "..") {
			return "no signature", err
		}
		return "", nil
	})
}

// nodesAreConfined: a node's credentials reach what its pods need, and nothing else.
func nodesAreConfined(t *T) {
	t.configMap("used", nil)
	t.configMap("unused", nil)
	one := pod("web")
	one.Spec.Volumes = []corev1.Volume{{Name: "used", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "used"}},
	}}}
	t.createPod(one)
	t.eventually("runs", t.podIs("web", corev1.PodRunning))
	running, err := t.client.CoreV1().Pods(t.namespace).Get(t.ctx, "web", metav1.GetOptions{})
	t.must(err)
	config, err := t.plane.NodeConfig(running.Spec.NodeName)
	t.must(err)
	node, err := kubernetes.NewForConfig(config)
	t.must(err)
	_, err = node.CoreV1().ConfigMaps(t.namespace).Get(t.ctx, "used", metav1.GetOptions{})
	t.must(err)
	deny := func(what string, err error) {
		if !apierrors.IsForbidden(err) {
			t.fail("%s: %v", what, err)
		}
	}
	_, err = node.CoreV1().ConfigMaps(t.namespace).Get(t.ctx, "unused", metav1.GetOptions{})
	deny("a ConfigMap of no pod", err)
	_, err = node.CoreV1().Secrets(t.namespace).List(t.ctx, metav1.ListOptions{})
	deny("all secrets", err)
	_, err = node.CoreV1().Nodes().Patch(t.ctx, otherNode(t, running.Spec.NodeName), "application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{})
	deny("another node", err)
	_, err = node.CoreV1().Nodes().Patch(t.ctx, running.Spec.NodeName, "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"node-restriction.kubernetes.io/a":"b"}}}`), metav1.PatchOptions{})
	deny("a restricted label", err)
	_, err = node.CoreV1().ServiceAccounts(t.namespace).CreateToken(t.ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	deny("a token that is bound to no pod", err)
}

func otherNode(t *T, name string) string {
	list, err := t.client.CoreV1().Nodes().List(t.ctx, metav1.ListOptions{})
	t.must(err)
	for _, node := range list.Items {
		if node.Name != name {
			return node.Name
		}
	}
	t.fail("there is but one node")
	return ""
}
