import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

interface Package {
  integrity?: string;
  hasInstallScript?: boolean;
  dev?: boolean;
  devOptional?: boolean;
}

const root = new URL('../../', import.meta.url);
const json = (name: string): unknown => JSON.parse(readFileSync(new URL(name, root), 'utf8'));
const { packages } = json('package-lock.json') as { packages: Record<string, Package> };
const installed = Object.entries(packages).filter(([path]) => path !== '');

/**
 * Packages of a public client that tests the sandbox. Their install scripts build nothing, and mgw does not ship them.
 */
const withScripts = ['node_modules/@google/genai', 'node_modules/protobufjs'];

describe('the lockfile', () => {
  it('pins every package by its hash', () => {
    expect(installed.length).toBeGreaterThan(100);
    for (const [path, { integrity }] of installed) expect(integrity, path).toMatch(/^sha512-/);
  });

  it('contains no package with an install script except known test dependencies', () => {
    const scripts = installed.filter(([, { hasInstallScript }]) => hasInstallScript).map(([path]) => path);
    expect(scripts.filter((path) => !withScripts.includes(path))).toEqual([]);
  });

  it('accompanies a package.json without install scripts', () => {
    const { scripts } = json('package.json') as { scripts: object };
    const atInstallation = [
      'preinstall',
      'install',
      'postinstall',
      'prepublish',
      'preprepare',
      'prepare',
      'postprepare',
    ];
    expect(Object.keys(scripts).filter((name) => atInstallation.includes(name))).toEqual([]);
  });

  it('contains no dependency that mgw users would install', () => {
    expect(json('package.json')).not.toHaveProperty('dependencies');
    expect(installed.filter(([, { dev, devOptional }]) => !dev && !devOptional)).toEqual([]);
  });
});
