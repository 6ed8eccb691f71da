/**
 * True for a host, as the URL parser spells it, that is this machine and nothing else: `localhost`, 127.0.0.0/8
 * and `[::1]`. A name such as `127.example.com` is not, and no other name is asked of DNS.
 */
export function isLoopbackHost(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(\.\d{1,3}){3}$/.test(hostname);
}
