"""What training the systems on pictures costs: seconds per image of each network, and the estimate for the paper's runs.

python benchmarks/systems.py [--batches N] [--threads N] [--device cpu]

Each network of each preset makes N forward and backward passes after one to warm up; the median gives seconds per
image, in processor time on a CPU and in time passed on a GPU. Times the number of images of a whole system (25 models), that is the estimate.
Results go to benchmarks/results/systems.csv. Weights are random, pictures are noise: neither changes the time.
"""
import argparse
import csv
import os
import pathlib
import statistics
import sys
import time

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
TRAINING = {"hgf": 2100, "shenzhen": 397, "mbrset": 3098}  # pictures of the training part
RUNS = [(preset, cohort, system) for preset in ("demo", "paper") for cohort in TRAINING for system in ("System1", "System2")]


def images_of(s, n):
    "How many pictures pass through the network, forward and backward, until a whole system is trained on n."
    def passes(recipe):
        return recipe["epochs"] * n if "epochs" in recipe else recipe["steps"] * recipe["batch_size"]
    return passes(s["fit"]) if s["kind"] == "phn" else passes(s["base"]) + s["models"] * passes(s["each"])


def network(s, device):
    "The network of a system without teaching its base, and the loss of one step."
    import torch
    from fairical_nb.hypernetwork import PHN, phn_loss
    from fairical_nb.image_systems import make_base, _weighted
    if s["kind"] == "phn":
        return PHN(s["encoder"], channels=s["channels"]).to(device), phn_loss(rays=s["rays"], n_groups=2)
    import numpy as np
    noise = torch.zeros(1, s["channels"], s["size"], s["size"], dtype=torch.uint8)
    return make_base(noise, {**s, "pretrain": None}, 0).to(device), _weighted(np.array([.5, .5]), s, 2)


def per_image(s, batches, device, most):
    "Seconds per image of a training step, median over batches of at most `most` pictures."
    import torch
    model, loss = network(s, device)
    size = min(most, (s["fit"] if s["kind"] == "phn" else s["each"])["batch_size"])
    batch = {"x": torch.rand(size, s["channels"], s["size"], s["size"], device=device), "y": torch.arange(size, device=device) % 2, "g": torch.arange(size, device=device) // 2 % 2}
    clock, seconds = time.process_time if device == "cpu" else time.perf_counter, []
    for _ in range(batches + 1):
        start = clock()
        model.zero_grad()
        loss(model, batch)[0].backward()
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append((clock() - start) / size)
    return statistics.median(seconds[1:]), size


def main():
    p = argparse.ArgumentParser(description="Seconds per image of the networks, and what a whole system would take")
    p.add_argument("--batches", type=int, default=3, help="timed steps (default 3)")
    p.add_argument("--most", type=int, default=128, help="largest batch that is timed (default 128; at the papers' sizes 16)")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--device", default="cpu")
    args = p.parse_args()
    import torch
    from fairical_nb.image_settings import settings
    torch.set_num_threads(args.threads)
    rows, timed = [], {}
    for preset, cohort, system in RUNS:
        s = settings(cohort, system, preset=preset)
        same = (preset, s["kind"], s["channels"])
        timed[same] = timed.get(same) or per_image(s, args.batches, args.device, args.most if preset == "demo" else 16)
        seconds, size = timed[same]
        n = images_of(s, TRAINING[cohort])
        name = s["encoder"] if s["kind"] == "phn" else s["network"]
        rows.append({"preset": preset, "cohort": cohort, "system": system, "kind": s["kind"], "network": name, "pixels": s["size"], "batch": size, "device": args.device,
                     "seconds_per_image": f"{seconds:.3g}", "images": n, "hours": f"{seconds * n / 3600:.3g}"})
        print("  ".join(str(v) for v in rows[-1].values()), flush=True)
    out = ROOT / "benchmarks" / "results" / ("systems.csv" if args.device == "cpu" else f"systems_{args.device}.csv")
    with open(out, "w", newline="", encoding="utf-8") as f:
        writer = csv.DictWriter(f, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
