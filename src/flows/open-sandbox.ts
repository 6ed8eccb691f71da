import { MgwError, systemCode, usageError } from '../errors.ts';
import type { Settings } from '../config/resolve.ts';
import { secretRedactor } from '../redact.ts';
import type { Limits } from '../sandbox/exchange.ts';
import type { Sandbox, SandboxOptions } from '../sandbox/server.ts';

/**
 * Opens the sandbox for `--sandbox`. Inside `mgw sandbox exec`, this is that command's sandbox, regardless of the base
 * URL and key that the script sets. Otherwise the sandbox runs in this process, with its data in `stateDir`.
 * @throws MgwError('local_io') if the sandbox's folder cannot be used.
 */
export async function openSandbox(
  settings: Settings,
  stateDir: string,
): Promise<Pick<Sandbox, 'url' | 'key' | 'close'>> {
  const { sandboxUrl: url, sandboxPaceMs } = settings;
  if (url === undefined) {
    const redact = secretRedactor([settings.key?.readIfValid() ?? '']);
    const paceMs = sandboxPaceMs.value;
    return startSandbox({ stateDir, paceMs, limits: limitsOf(settings), redact, unref: true });
  }
  const { defaultKey } = await import('../sandbox/auth.ts');
  return { url, key: defaultKey, close: async () => {} };
}

/** Returns the sandbox account's limits. Flags take precedence over settings. */
export function limitsOf(settings: Settings, flags: Limits = {}): Limits {
  return {
    balance: flags.balance ?? settings.sandboxBalance.value,
    concurrency: flags.concurrency ?? settings.sandboxConcurrency.value,
    perMinute: flags.perMinute ?? settings.sandboxPerMinute.value,
  };
}

/**
 * Starts a sandbox.
 * @throws MgwError: `usage` for an invalid fault, key or model, or for a port in use; `local_io` if the folder cannot
 * be used.
 */
export async function startSandbox(options: SandboxOptions): Promise<Sandbox> {
  const server = await import('../sandbox/server.ts');
  try {
    return await server.startSandbox(options);
  } catch (error) {
    throw toReadableError(error as Error, options);
  }
}

function toReadableError(error: Error, { port, stateDir }: SandboxOptions): Error {
  const { name, message } = error;
  if (name === 'FaultSyntaxError') return usageError(`--fault: ${message}`);
  if (name === 'KeySyntaxError') return usageError(`--key: ${message}`);
  if (Reflect.get(error, 'syscall') === 'listen')
    return usageError(`--port ${port ?? 0}: the sandbox cannot listen on this port: ${message}`);
  if (systemCode(error) === undefined) return error;
  return new MgwError('local_io', `The sandbox cannot use its folder ${stateDir}: ${message}`, {
    retry: 'safe',
    cause: error,
  });
}
