"""汇总各城市的销售额。"""
import csv
import sys

来源, 目标 = sys.argv[1:]
合计 = {}
with open(来源, encoding="utf-8", newline="") as 文本:
    for 行 in csv.DictReader(文本):
        合计[行["城市"]] = 合计.get(行["城市"], 0) + float(行["销售额"])
with open(目标, "w", encoding="utf-8") as 报告:
    报告.write("# 销售报告\n\n")
    for 城市, 数额 in sorted(合计.items()):
        报告.write(f"- {城市}：{数额:g} 元\n")
print(f"共 {len(合计)} 个城市")
