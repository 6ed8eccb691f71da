import { existsSync, readFileSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { beforeEach, expect, it } from 'vitest';
import { describeFleet } from '../batch/fleet/place.ts';
import { clips } from '../batch/scene.ts';
import { account, s3Server } from '../store/s3-server.ts';
import { onEnd } from '../support/clean-ups.ts';
import { writeRelease } from '../support/local-release.ts';
import { freshFolder } from '../support/servers.ts';
import { newShell, type Shell } from '../support/shell.ts';
import { Runners } from './workflow.ts';

const read = (name: string): string =>
  readFileSync(fileURLToPath(new URL(`../../docs/${name}`, import.meta.url)), 'utf8');
const [, recipe = ''] = /```yaml\n([^]*?)```/.exec(read('fleet.md')) ?? [];
const manifest = read('kubernetes.yaml');

interface Manifest {
  spec: {
    template: {
      spec: {
        terminationGracePeriodSeconds: number;
        containers: [{ args: string[]; livenessProbe: { exec: { command: string[] } } }];
      };
    };
  };
}

const quoted = (word: string): string => `'${word}'`;

describeFleet('docs/fleet.md', {}, (place) => {
  let shell: Shell;
  beforeEach(() => {
    shell = newShell({
      MGW_STATE: place.url(),
      MGW_BASE_URL: place.gateway.url,
      MGW_API_KEY: 'sk-0123456789abcdef',
    });
    onEnd(() => shell.close());
    const rows = [0, 1, 2].map((n): [string, string] => [`row-${n}`, `prompt ${n}`]);
    writeFileSync(join(shell.home, 'clips.csv'), clips(...rows));
  });

  const paid = (): unknown[] => [...place.gateway.charges.values()];

  it('contains a recipe for jobs that run a batch, and repeating the recipe costs nothing', async () => {
    const release = freshFolder();
    writeRelease(release);
    const values = Object.fromEntries(
      Object.entries(shell.env).flatMap(([name, value = '']) => [
        [`secrets.${name}`, value],
        [`vars.${name}`, value],
      ]),
    ) as Record<string, string>;
    const runners = new Runners({ ...values, 'matrix.runner': '1' }, { 'clips.csv': join(shell.home, 'clips.csv') });
    // Replaces the release with a local one, and makes the workers stop as soon as they are idle.
    const text = recipe
      .replaceAll(/(mgw\/action@.*)/g, `$1\n        with: { release: '${release}' }`)
      .replace('--max-idle 2m', '--max-idle 1s --poll-interval 10ms');
    for (let runs = 0; runs < 2; runs += 1) {
      const { code, log, workspace } = await runners.run(text);
      expect(code, log).toBe(0);
      expect(existsSync(join(workspace, 'out/row-2.mp4'))).toBe(runs === 0);
    }
    expect(paid()).toEqual([1, 1, 1]);
  });

  it('contains a Kubernetes manifest of a working worker, whose probe reports whether the worker is alive', async () => {
    const { terminationGracePeriodSeconds: grace, containers } = (parse(manifest) as Manifest).spec.template
      .spec;
    const [{ args, livenessProbe }] = containers;
    const store = await s3Server();
    Object.assign(shell.env, account, { AWS_ENDPOINT_URL_S3: store.url });
    const here = (word: string): string => word.replaceAll('/tmp/', './');
    expect(grace).toBeGreaterThan(25);
    await shell.run('mgw batch enqueue clips.csv');
    const quick = ['--max-idle', '1s', '--poll-interval', '10ms'];
    const ran = await shell.run(['mgw', ...args.map(here), ...quick].map(quoted).join(' '));
    expect(ran.code, ran.stderr).toBe(0);
    expect([...store.objects.keys()].sort()).toEqual([0, 1, 2].map((n) => `/clips/clips/row-${n}.mp4`));
    const probe = livenessProbe.exec.command.map(here).map(quoted).join(' ');
    expect((await shell.run(probe)).code).toBe(0);
    const then = Date.now() / 1000 - 1000;
    utimesSync(join(shell.home, 'alive'), then, then);
    expect((await shell.run(probe)).code).toBe(1);
  });
});
