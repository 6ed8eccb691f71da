const sources = {
  /** Makes the first MGW_TEST_DNS_FAILURES name lookups fail, as if the resolver were down. */
  'failing-dns': `
    import dns from 'node:dns';
    const { lookup } = dns;
    let left = Number(process.env.MGW_TEST_DNS_FAILURES);
    dns.lookup = (hostname, options, callback) => {
      if (left <= 0) return lookup(hostname, options, callback);
      left -= 1;
      const error = Object.assign(new Error('getaddrinfo EAI_AGAIN ' + hostname), { code: 'EAI_AGAIN', hostname });
      process.nextTick(typeof options === 'function' ? options : callback, error);
    };`,
  /**
   * Writes the process's peak memory, in kilobytes, to the file MGW_TEST_PEAK. Reads the value from the system, because
   * getrusage includes the parent process.
   */
  'peak-memory': `
    import { readFileSync, writeFileSync } from 'node:fs';
    process.on('exit', () => {
      const [, peak] = /VmHWM:\\s+(\\d+)/.exec(readFileSync('/proc/self/status', 'utf8'));
      writeFileSync(process.env.MGW_TEST_PEAK, peak);
    });`,
  /** Replaces the global fetch with one that drops its dispatcher, as tracing libraries do. */
  'patched-fetch': `
    const { fetch } = globalThis;
    globalThis.fetch = (url, { dispatcher, ...rest } = {}) => fetch(url, rest);`,
};

/** Returns an environment in which a command starts with one of these preloads. */
export function preloaded(name: keyof typeof sources, env: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const url = `data:text/javascript,${encodeURIComponent(sources[name])}`;
  return { NODE_OPTIONS: `--import=${url}`, ...env };
}
