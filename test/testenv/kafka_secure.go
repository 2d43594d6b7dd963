//go:build unix

package testenv

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The user that SecureListeners know, for PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
const (
	SASLUser     = "projector"
	SASLPassword = "projector-secret"
)

// secureProtocols are the names of the listeners and of their protocols.
var secureProtocols = []string{"SASL_PLAINTEXT", "SASL_SSL", "SSL"}

// SecureListeners describes a broker's listeners for TLS and SASL. The
// mechanisms are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER with
// unsecured tokens. A client certificate is asked for and not required.
type SecureListeners struct {
	// CAFile, CertFile and KeyFile are PEM files for a client: who signed
	// the broker's certificate, and a certificate and key of its own.
	CAFile, CertFile, KeyFile string

	keystore string // the broker's own key and certificate
	ports    map[string]int
}

// Brokers lists the address of the listener with this security protocol:
// SASL_PLAINTEXT, SASL_SSL or SSL.
func (s *SecureListeners) Brokers(protocol string) []string {
	return []string{fmt.Sprintf("127.0.0.1:%d", s.ports[protocol])}
}

// UnsecuredToken returns a token for OAUTHBEARER that the broker accepts for
// the given time.
func UnsecuredToken(valid time.Duration) string {
	part := base64.RawURLEncoding.EncodeToString
	now := time.Now()
	return part([]byte(`{"alg":"none"}`)) + "." +
		part(fmt.Appendf(nil, `{"sub":%q,"iat":%d,"exp":%d}`, SASLUser, now.Unix(), now.Add(valid).Unix())) + "."
}

func (s *SecureListeners) protocolMap() []string {
	var m []string
	for _, p := range secureProtocols {
		m = append(m, p+":"+p)
	}
	return m
}

func (s *SecureListeners) settings() map[string]string {
	const (
		plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
		scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
		oauth = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
		// accepts tokens that nobody signed, which is for tests alone
		unsecured = "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
	)
	m := map[string]string{
		"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		"ssl.keystore.type":       "PEM",
		"ssl.keystore.location":   s.keystore,
		"ssl.truststore.type":     "PEM",
		"ssl.truststore.location": s.CAFile,
		"ssl.client.auth":         "requested",
	}
	for _, listener := range []string{"sasl_plaintext", "sasl_ssl"} {
		prefix := "listener.name." + listener + "."
		m[prefix+"plain.sasl.jaas.config"] = fmt.Sprintf(`%s required user_%s="%s";`, plain, SASLUser, SASLPassword)
		m[prefix+"scram-sha-256.sasl.jaas.config"] = scram + " required;"
		m[prefix+"scram-sha-512.sasl.jaas.config"] = scram + " required;"
		m[prefix+"oauthbearer.sasl.jaas.config"] = oauth + ` required unsecuredLoginStringClaim_sub="broker";`
		m[prefix+"oauthbearer.sasl.server.callback.handler.class"] = unsecured
	}
	return m
}

func (s *SecureListeners) formatArgs() []string {
	var args []string
	for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
		args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, SASLUser, SASLPassword))
	}
	return args
}

// newSecureListeners makes the certificates.
func newSecureListeners(dir string) (*SecureListeners, error) {
	s := &SecureListeners{
		CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "client.pem"),
		KeyFile: filepath.Join(dir, "client-key.pem"), keystore: filepath.Join(dir, "broker.pem"),
	}
	ca, err := newAuthority()
	if err != nil {
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	broker, err := ca.issue("broker", x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, fmt.Errorf("making the broker's certificate: %w", err)
	}
	client, err := ca.issue(SASLUser, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, fmt.Errorf("making the client's certificate: %w", err)
	}
	for path, content := range map[string][]byte{
		s.CAFile: ca.pem, s.CertFile: client.cert, s.KeyFile: client.key, s.keystore: append(broker.key, broker.cert...),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return nil, fmt.Errorf("writing certificates: %w", err)
		}
	}
	return s, nil
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// identity is a certificate and its key, as PEM.
type identity struct{ cert, key []byte }

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate("orderprojector test authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: encodePEM("CERTIFICATE", der)}, nil
}

func (a *authority) issue(name string, usage ...x509.ExtKeyUsage) (identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, err
	}
	template := certificate(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = usage
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.DNSNames = []string{"localhost"}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return identity{}, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return identity{}, err
	}
	return identity{cert: encodePEM("CERTIFICATE", der), key: encodePEM("PRIVATE KEY", pkcs8)}, nil
}

func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

func encodePEM(kind string, der []byte) []byte {
	var b bytes.Buffer
	_ = pem.Encode(&b, &pem.Block{Type: kind, Bytes: der}) // into memory
	return b.Bytes()
}
